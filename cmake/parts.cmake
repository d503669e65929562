# Finds the optional parts. CECL_<part> = AUTO takes a part if it is there; ON fails without it.

function(part_missing part)
  if(CECL_${part} STREQUAL "ON")
    message(FATAL_ERROR "CECL_${part}=ON, but " ${ARGN})
  endif()
endfunction()

# The library needs CUDA's headers and a compiler for its kernels: nvcc, or NVRTC from Python's packages. Tests,
# examples and benchmarks of CUDA need a whole toolkit, with cuBLAS (CECL_TOOLKIT_ENABLED).
set(CECL_CUDA_ENABLED OFF)
set(CECL_TOOLKIT_ENABLED OFF)
if(NOT CECL_CUDA STREQUAL "OFF" AND NOT CECL_KERNELS STREQUAL "nvrtc")
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual) # for examples and tests
  endif()
  # CMake 3.25.1 (Debian 12) fails where CUDA 13 has no nvToolsExt, unless the project asks for an older CMake than
  # 3.25.
  set(minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
  set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  find_package(CUDAToolkit QUIET)
  set(CMAKE_MINIMUM_REQUIRED_VERSION ${minimum})
  if(NOT CMAKE_CUDA_COMPILER)
    unset(CMAKE_CUDA_COMPILER CACHE) # searched again, because it may have been installed since
    if(CUDAToolkit_NVCC_EXECUTABLE AND NOT DEFINED ENV{CUDACXX})
      set(ENV{CUDACXX} ${CUDAToolkit_NVCC_EXECUTABLE}) # nvcc need not be on PATH
    endif()
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND CUDAToolkit_FOUND AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
    enable_language(CUDA)
    set(CECL_CUDA_ENABLED ON)
    if(TARGET CUDA::cublas)
      set(CECL_TOOLKIT_ENABLED ON)
    endif()
    set(CECL_KERNEL_COMPILER nvcc)
    set(CECL_KERNEL_COMPILER_VERSION ${CUDAToolkit_VERSION})
    set(CECL_CUDA_INCLUDE_DIRS ${CUDAToolkit_INCLUDE_DIRS})
  endif()
endif()
if(NOT CECL_CUDA STREQUAL "OFF" AND NOT CECL_CUDA_ENABLED AND NOT CECL_KERNELS STREQUAL "nvcc")
  find_package(Python3 QUIET COMPONENTS Interpreter)
  set(why "no Python 3 was found")
  if(Python3_EXECUTABLE)
    execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/nvrtc.py --find
                    RESULT_VARIABLE result OUTPUT_VARIABLE found ERROR_VARIABLE why
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
    if(result EQUAL 0)
      string(REPLACE "\n" ";" found "${found}")
      list(POP_FRONT found CECL_NVRTC_LIBRARY CECL_KERNEL_COMPILER_VERSION)
      if(CECL_KERNEL_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
        set(CECL_CUDA_ENABLED ON)
        set(CECL_KERNEL_COMPILER nvrtc)
        set(CECL_CUDA_INCLUDE_DIRS ${found})
      else()
        set(why "${CECL_NVRTC_LIBRARY} is of CUDA ${CECL_KERNEL_COMPILER_VERSION}")
      endif()
    endif()
  endif()
endif()
if(NOT CECL_CUDA_ENABLED)
  part_missing(CUDA "no CUDA toolkit 12.8 or later with nvcc was found (put its nvcc on PATH if it lies in "
               "no usual place), and no NVRTC in its place: ${why}. `pip install nvidia-cuda-nvrtc-cu12==12.8.* "
               "nvidia-cuda-runtime-cu12==12.8.* nvidia-nvtx-cu12` into the Python that "
               "-DPython3_EXECUTABLE names will do")
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

# NCCL is what the benchmarks compare with; the library opens it at run time, and only over several hosts.
set(CECL_BASELINE_NCCL_ENABLED OFF)
if(NOT CECL_BASELINE_NCCL STREQUAL "OFF" AND CECL_TOOLKIT_ENABLED)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR}
               ${CUDAToolkit_LIBRARY_ROOT}/lib ${CUDAToolkit_LIBRARY_ROOT}/lib64)
  if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    add_library(CECL::nccl UNKNOWN IMPORTED)
    set_target_properties(CECL::nccl PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY})
    target_include_directories(CECL::nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
    target_link_libraries(CECL::nccl INTERFACE CUDA::toolkit) # nccl.h includes CUDA's headers, often of another folder
    set(CECL_BASELINE_NCCL_ENABLED ON)
  endif()
endif()
if(NOT CECL_BASELINE_NCCL_ENABLED AND NOT CECL_BASELINE_NCCL STREQUAL "OFF")
  part_missing(BASELINE_NCCL "NCCL was not found (NVIDIA's packages libnccl2 and libnccl-dev), or a CUDA toolkit was not")
endif()
