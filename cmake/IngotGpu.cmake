# ingot_gpu_sources(target files...): compiles GPU kernels (*.cu) for the emulator, as C++ with INGOT_ISA=emulated (see
# src/device/gpu/rt.h), and with INGOT_CUDA also by nvcc for NVIDIA's GPUs. What the compilers of GPUs say of them is the test
# label `ptx` (scripts/check_gpu_code). The driver is opened when a device is asked for: nothing of CUDA is linked.
option(INGOT_CUDA "compile the GPU kernels by nvcc, for --device=cuda" OFF)
set(INGOT_CUDA_ARCHITECTURES "sm_80;sm_90a;sm_100" CACHE STRING "what nvcc compiles them for")
set(INGOT_WITH_CUDA ${INGOT_CUDA})
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/ingot_gpu_builds.h CONTENT "// Written by cmake/IngotGpu.cmake.
#pragma once
#cmakedefine INGOT_WITH_CUDA
")
set(INGOT_EMULATED_FLAGS "" CACHE STRING "options for compiling the emulator's kernels, after those of the build type")
set(INGOT_EMULATED_DEFINITIONS INGOT_ISA=emulated INGOT_ISA_gpu=1 INGOT_ISA_emulated=1)
function(ingot_gpu_sources target)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
  add_library(${target}_emulated OBJECT ${ARGN})
  target_include_directories(${target}_emulated PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${target}_emulated PRIVATE ${INGOT_EMULATED_DEFINITIONS})
  # Fibres spend their time in each other's stacks, not in loops: -O2 compiles in half the time of -O3. Without tests few
  # will emulate a GPU, and -O0 compiles in a quarter of that.
  target_compile_options(${target}_emulated PRIVATE $<$<CONFIG:Release,Dev>:$<IF:$<BOOL:${INGOT_TESTS}>,-O2,-O0>>
                         ${INGOT_EMULATED_FLAGS})
  set_target_properties(${target}_emulated PROPERTIES UNITY_BUILD OFF)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_emulated>)
  if(INGOT_CUDA)
    ingot_cuda_sources(${target} ${ARGN})
  endif()
endfunction()

function(ingot_cuda_sources target)
  find_program(INGOT_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(NOT INGOT_NVCC)
    message(FATAL_ERROR "INGOT_CUDA=ON, and there is no nvcc: put it on PATH, or name it with -DINGOT_NVCC=")
  endif()
  execute_process(COMMAND ${INGOT_NVCC} --version OUTPUT_VARIABLE said)
  string(REGEX MATCH "release ([0-9]+)\\.([0-9]+)" found "${said}")
  math(EXPR version "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
  set(images "")
  foreach(architecture IN LISTS INGOT_CUDA_ARCHITECTURES)
    string(REPLACE sm_ compute_ virtual ${architecture})
    list(APPEND images -gencode arch=${virtual},code=${architecture})
  endforeach()
  string(REPLACE ";" " " architectures "${INGOT_CUDA_ARCHITECTURES}")
  set(launcher "")
  if(CCACHE_PROGRAM)
    set(launcher ${CCACHE_PROGRAM})
  endif()
  set_source_files_properties(src/device/cuda/kernel_images.cpp PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_DEFINITIONS
    "INGOT_CUDA_VERSION=${version};INGOT_CUDA_ARCHITECTURES=\"${architectures}\"")
  foreach(file IN LISTS ARGN)
    file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR}/src ${file})
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(OUTPUT ${object}
      COMMAND ${launcher} ${INGOT_NVCC} -std=c++20 -O3 -fmad=false -cudart none ${images} -I${CMAKE_SOURCE_DIR}/src
              -DINGOT_ISA=cuda -DINGOT_ISA_gpu=1 -DINGOT_ISA_cuda=1 -MD -MF ${object}.d -c ${file} -o ${object}
      DEPENDS ${file} DEPFILE ${object}.d COMMENT "nvcc ${name}" VERBATIM)
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
endfunction()
