# ingot_gpu_sources(target files...): compiles GPU kernels (*.cu) for the emulator, as C++ with INGOT_ISA=emulated (see
# src/device/gpu/rt.h). What the compilers of GPUs say of them is the test label `ptx` (scripts/check_gpu_code).
set(INGOT_EMULATED_DEFINITIONS INGOT_ISA=emulated INGOT_ISA_gpu=1 INGOT_ISA_emulated=1)
function(ingot_gpu_sources target)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
  add_library(${target}_emulated OBJECT ${ARGN})
  target_include_directories(${target}_emulated PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${target}_emulated PRIVATE ${INGOT_EMULATED_DEFINITIONS})
  # Fibres spend their time in each other's stacks, not in loops: -O2 compiles in half the time of -O3. Without tests few
  # will emulate a GPU, and -O0 compiles in a quarter of that.
  target_compile_options(${target}_emulated PRIVATE $<$<CONFIG:Release,Dev>:$<IF:$<BOOL:${INGOT_TESTS}>,-O2,-O0>>)
  set_target_properties(${target}_emulated PROPERTIES UNITY_BUILD OFF)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_emulated>)
endfunction()
