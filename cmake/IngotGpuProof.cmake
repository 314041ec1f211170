# Writes <build>/generated/ingot_gpu_proof.h: the hash of the sources of each op's kernel for GPUs and of those of the update,
# and docs/gpu/proven.json, as src/ops/gpu_proof.cpp reads them. Comments and spaces do not count. Included by CMakeLists.txt
# it defines the target; run as a script (cmake -P) it writes the file.
#
# The sources of an op are its gpu.cpp (of the update: optim/gpu_*.cpp and optim/step_sums.cpp), the headers gpu_*.h that it
# includes, or that these include, with the *.cpp of those of device/, every *.cu of its folder and of theirs, and every header
# of the tree that these *.cu include, but those of the emulator and of HIP.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  set(left_out device/gpu/rt_emulated.h device/gpu/rt_hip.h device/gpu/emulator.h device/gpu/hopper_emulated.h
      device/gpu/emulated_hopper.h)

  # text_of(FILE): in `text`, without comments; its includes in `includes`.
  macro(text_of file)
    get_property(text GLOBAL PROPERTY "text ${file}")
    get_property(includes GLOBAL PROPERTY "includes ${file}")
    if(NOT text)
      file(READ ${SOURCE}/src/${file} text)
      string(REGEX REPLACE "//[^\n]*" "" text "${text}")
      string(REGEX REPLACE "[ \t\n]+" " " text "${text}")
      string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
      list(TRANSFORM includes REPLACE "#include \"([^\"]+)\"" "\\1")
      set_property(GLOBAL PROPERTY "text ${file}" "${text} ")
      set_property(GLOBAL PROPERTY "includes ${file}" "${includes}")
    endif()
  endmacro()

  function(walk file)
    get_property(seen GLOBAL PROPERTY seen)
    if(file IN_LIST seen OR file IN_LIST left_out)
      return()
    endif()
    set_property(GLOBAL APPEND PROPERTY seen ${file})
    text_of(${file})
    foreach(header IN LISTS includes)
      if(EXISTS ${SOURCE}/src/${header})
        walk(${header})
      endif()
    endforeach()
  endfunction()

  # add_kernels(NAMES FILE...): a line for each name, whose sources begin with these files.
  function(add_kernels names)
    set_property(GLOBAL PROPERTY seen "")
    set(folders "")
    set(known "")
    set(headers ${ARGN})
    while(headers)
      list(POP_FRONT headers header)
      get_filename_component(folder ${header} DIRECTORY)
      list(APPEND folders ${folder})
      text_of(${header})
      list(FILTER includes INCLUDE REGEX "/gpu_[a-z0-9_]+\\.h$")
      list(REMOVE_ITEM includes ${known})
      list(APPEND known ${includes})
      list(APPEND headers ${includes})
    endwhile()
    foreach(header IN LISTS known)
      string(REGEX REPLACE "h$" "cpp" source ${header})
      if(source MATCHES "^device/" AND EXISTS ${SOURCE}/src/${source})
        list(APPEND known ${source})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES folders)
    foreach(folder IN LISTS folders)
      file(GLOB kernels RELATIVE ${SOURCE}/src ${SOURCE}/src/${folder}/*.cu)
      foreach(kernel IN LISTS kernels)
        walk(${kernel})
      endforeach()
    endforeach()
    get_property(seen GLOBAL PROPERTY seen)
    list(APPEND seen ${ARGN} ${known})
    list(REMOVE_DUPLICATES seen)
    list(SORT seen)
    set(all "")
    foreach(each IN LISTS seen)
      text_of(${each})
      string(APPEND all "${each}\n${text}\n")
    endforeach()
    string(SHA256 hash "${all}")
    string(SUBSTRING ${hash} 0 16 hash)
    foreach(name IN LISTS names)
      string(REGEX REPLACE "Kernel ([a-z0-9_]+)_gpu.*" "\\1" name "${name}")
      set_property(GLOBAL APPEND_STRING PROPERTY lines "    {\"${name}\", \"${hash}\"},\n")
    endforeach()
  endfunction()

  file(GLOB glue RELATIVE ${SOURCE}/src ${SOURCE}/src/ops/*/gpu.cpp)
  foreach(file IN LISTS glue)
    text_of(${file})
    string(REGEX MATCHALL "Kernel [a-z0-9_]+_gpu\\(\\)" names "${text}")
    add_kernels("${names}" ${file})
  endforeach()
  file(GLOB glue RELATIVE ${SOURCE}/src ${SOURCE}/src/optim/gpu_*.cpp ${SOURCE}/src/optim/step_sums.cpp)
  add_kernels("update;update_mma" ${glue})
  get_property(lines GLOBAL PROPERTY lines)
  file(READ ${SOURCE}/docs/gpu/proven.json proven)
  file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
       "// Written by cmake/IngotGpuProof.cmake.
#pragma once
#include <utility>
namespace ingot {
constexpr std::pair<const char*, const char*> kGpuKernelSources[] = {
@lines@};
constexpr const char* kProvenKernels = R\"json(@proven@)json\";
}  // namespace ingot
")
  return()
endif()

file(GLOB_RECURSE gpu_proof_inputs CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.cu ${CMAKE_SOURCE_DIR}/src/base/*.h
     ${CMAKE_SOURCE_DIR}/src/device/*.h ${CMAKE_SOURCE_DIR}/src/ops/*.h ${CMAKE_SOURCE_DIR}/src/ops/gpu.cpp
     ${CMAKE_SOURCE_DIR}/src/device/gpu_*.cpp ${CMAKE_SOURCE_DIR}/src/optim/*.h ${CMAKE_SOURCE_DIR}/src/optim/gpu_*.cpp
     ${CMAKE_SOURCE_DIR}/src/optim/step_sums.cpp)
set(gpu_proof_header ${CMAKE_BINARY_DIR}/generated/ingot_gpu_proof.h)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/ingot_gpu_proof.stamp BYPRODUCTS ${gpu_proof_header}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${gpu_proof_header} -P ${CMAKE_CURRENT_LIST_FILE}
  COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/ingot_gpu_proof.stamp
  DEPENDS ${gpu_proof_inputs} ${CMAKE_SOURCE_DIR}/docs/gpu/proven.json ${CMAKE_CURRENT_LIST_FILE}
  COMMENT "" VERBATIM)
add_custom_target(ingot_gpu_proof DEPENDS ${CMAKE_BINARY_DIR}/ingot_gpu_proof.stamp)
add_dependencies(ingot_core ingot_gpu_proof)
