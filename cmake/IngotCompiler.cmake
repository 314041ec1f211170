# Compiler settings shared by every target: warnings, the numerics contract's flags, ccache, sanitizers.
add_compile_options(-Wall -Wextra -Wpedantic -Wno-unused-parameter -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-psabi)
  # The compiler looks for memory to free when it has 2 GB, not at each doubling: 5 to 10 % of the time.
  add_compile_options("SHELL:--param ggc-min-expand=1000" "SHELL:--param ggc-min-heapsize=2097152")
  if(CMAKE_UNITY_BUILD)  # files that are included look like headers, which should not use anonymous namespaces
    add_compile_options(-Wno-subobject-linkage)
  endif()
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # Known false alarms of gcc 12: concatenation of std::string, default member values that are lists, members of {fmt} in loops.
    add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow)
  endif()
endif()
# docs/numerics.md, rule 7: a*b+c is two roundings unless the code says fma; no value-changing optimisation anywhere.
add_compile_options(-ffp-contract=off -fno-math-errno -fno-trapping-math)
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")
set(CMAKE_CXX_FLAGS_DEV "-O0")  # the quickest build while editing; kernels are optimized all the same (IngotIsa)
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What ccache must overlook, says its manual, where headers are precompiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()
if(INGOT_SANITIZE)
  add_compile_options(-fsanitize=${INGOT_SANITIZE} -fno-omit-frame-pointer)
  # A report names functions and lines, for which -g1 is enough; of the checks for undefined behaviour, these see little
  # that the address sanitizer or a trap would not, or (alignment) that these processors mind. Half of the compile time.
  set(CMAKE_CXX_FLAGS_DEBUG "-Og -g1")
  add_compile_options(-fno-sanitize=null,vptr,object-size,alignment,pointer-overflow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND INGOT_SANITIZE MATCHES address)
    # Accesses are checked by calls, an eighth quicker to compile. Kernels check where they are (IngotIsa).
    add_compile_options("SHELL:--param asan-instrumentation-with-call-threshold=0")
  endif()
  add_link_options(-fsanitize=${INGOT_SANITIZE})
endif()
if(INGOT_FUZZ)
  # Coverage feedback for the library's code, and undefined behaviour as a crash.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
endif()
