# Compiles the library's kernels, src/sm/*.cu, to images: a cubin for each kind of GPU, and PTX for later
# ones. CECL_KERNEL_COMPILER, nvcc or nvrtc, is what parts.cmake found. cecl_embed_kernels(TARGET) is for
# a target of this tree that has src/sm/images.c.
set(kernel_cubins 80 90 100)
set(kernel_ptx 90)
set(kernel_files small reduce_wide reduce_bulk splits sums)
set(kernel_folder ${PROJECT_BINARY_DIR}/kernels)
set(image_folder ${kernel_folder})
if(CECL_KERNEL_FOLDER) # compiled before, from the same sources
  get_filename_component(image_folder ${CECL_KERNEL_FOLDER} ABSOLUTE BASE_DIR ${CMAKE_BINARY_DIR})
  file(STRINGS ${image_folder}/compiler compiler)
  list(GET compiler 0 CECL_KERNEL_COMPILER)
  list(GET compiler 1 CECL_KERNEL_COMPILER_VERSION)
else()
  file(WRITE ${kernel_folder}/compiler "${CECL_KERNEL_COMPILER}\n${CECL_KERNEL_COMPILER_VERSION}\n")
endif()
set(kernel_options -std=c++17 -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src)
file(GLOB kernel_headers CONFIGURE_DEPENDS src/sm/*.cuh src/sm/*.h)
list(FILTER kernel_headers EXCLUDE REGEX "/(images|kernels)\\.h$") # the host's
list(APPEND kernel_headers ${PROJECT_SOURCE_DIR}/include/cecl/cecl.h
     ${PROJECT_SOURCE_DIR}/src/util/error.h)

if(CECL_KERNEL_COMPILER STREQUAL "nvcc")
  set(compile ${CMAKE_CUDA_COMPILER} -O3 ${kernel_options})
  if(CMAKE_CUDA_HOST_COMPILER)
    list(APPEND compile -ccbin ${CMAKE_CUDA_HOST_COMPILER})
  endif()
else()
  set(compile ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/nvrtc.py ${CECL_NVRTC_LIBRARY})
  list(APPEND kernel_options -I${PROJECT_SOURCE_DIR}/cmake/nvrtc -default-device)
endif()

# kernel_image(FILE CAPABILITY cubin|ptx): adds to kernel_images, and a line to kernel_lines.
function(kernel_image file capability kind)
  set(source ${PROJECT_SOURCE_DIR}/src/sm/${file}.cu)
  set(image ${image_folder}/${file}.${capability}.${kind})
  set(arch sm_${capability})
  if(kind STREQUAL "ptx")
    set(arch compute_${capability})
  endif()
  if(CECL_KERNEL_COMPILER STREQUAL "nvcc")
    set(command ${compile} -${kind} -arch=${arch} -o ${image} ${source})
  else()
    set(command ${compile} ${source} ${image} --gpu-architecture=${arch} ${kernel_options})
  endif()
  if(NOT CECL_KERNEL_FOLDER)
    add_custom_command(OUTPUT ${image} COMMAND ${command} DEPENDS ${source} ${kernel_headers}
                       COMMENT "Compiling the kernels of ${file}.cu by ${CECL_KERNEL_COMPILER} for ${arch}"
                       VERBATIM)
  endif()
  set(kernel_images ${kernel_images} ${image} PARENT_SCOPE)
  set(kernel_lines "${kernel_lines}IMAGE(${file}, ${capability}, ${kind}, \"${image}\")\n" PARENT_SCOPE)
endfunction()

set(kernel_images "")
set(kernel_lines "")
foreach(file ${kernel_files})
  foreach(capability ${kernel_cubins})
    if(capability GREATER_EQUAL 90 OR NOT file STREQUAL "reduce_bulk") # which has bulk copies alone
      kernel_image(${file} ${capability} cubin)
    endif()
  endforeach()
  kernel_image(${file} ${kernel_ptx} ptx)
endforeach()
add_custom_target(cecl_kernels DEPENDS ${kernel_images})
file(CONFIGURE OUTPUT ${kernel_folder}/kernel_images.inc CONTENT "${kernel_lines}" @ONLY)

string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" version "${CECL_KERNEL_COMPILER_VERSION}")
math(EXPR kernel_cuda "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")

function(cecl_embed_kernels target)
  add_dependencies(${target} cecl_kernels)
  target_include_directories(${target} PRIVATE ${kernel_folder})
  target_compile_definitions(${target} PRIVATE CECL_KERNELS_CUDA=${kernel_cuda})
endfunction()
set_source_files_properties(src/sm/images.c PROPERTIES OBJECT_DEPENDS "${kernel_images}")
