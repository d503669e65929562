# Finds the optional parts. CECL_<part> = AUTO takes what is there, ON fails without it.

function(part_missing part)
  if(CECL_${part} STREQUAL "ON")
    message(FATAL_ERROR "CECL_${part}=ON, but " ${ARGN})
  endif()
endfunction()

set(CECL_CUDA_ENABLED OFF)
if(NOT CECL_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual) # PTX for later chips
  endif()
  find_package(CUDAToolkit QUIET)
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE) # looked for anew: it may have been installed since
    if(CUDAToolkit_NVCC_EXECUTABLE AND NOT DEFINED ENV{CUDACXX})
      set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE}) # nvcc need not be on PATH
    endif()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
    enable_language(CUDA)
    set(CECL_CUDA_ENABLED ON)
  else()
    part_missing(CUDA "no CUDA toolkit 12.8 or later with nvcc was found: install one from NVIDIA, "
                 "and put its nvcc on PATH if it lies in no usual place")
  endif()
endif()

set(CECL_MPI_ENABLED OFF)
if(NOT CECL_MPI STREQUAL "OFF")
  find_package(MPI QUIET COMPONENTS C)
  if(MPI_C_FOUND)
    set(CECL_MPI_ENABLED ON)
  else()
    part_missing(MPI "no MPI for C was found (Debian: libopenmpi-dev openmpi-bin)")
  endif()
endif()

# NCCL is what the benchmarks compare with; the library does not use it.
set(CECL_BASELINE_NCCL_ENABLED OFF)
if(NOT CECL_BASELINE_NCCL STREQUAL "OFF" AND CECL_CUDA_ENABLED)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR}
               ${CUDAToolkit_LIBRARY_ROOT}/lib ${CUDAToolkit_LIBRARY_ROOT}/lib64)
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    add_library(CECL::nccl UNKNOWN IMPORTED)
    set_target_properties(CECL::nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY})
    target_include_directories(CECL::nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
    set(CECL_BASELINE_NCCL_ENABLED ON)
  endif()
endif()
if(NOT CECL_BASELINE_NCCL_ENABLED AND NOT CECL_BASELINE_NCCL STREQUAL "OFF")
  part_missing(BASELINE_NCCL "NCCL was not found (NVIDIA's packages libnccl2 and libnccl-dev), or CUDA was not")
endif()
