# Tests whose ranks are processes: ingot_test_mpi under mpirun. Part of the label ranks; without MPI one test says so.
if(NOT MPI_CXX_FOUND)
  add_test(NAME ranks.Mpi COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: built without MPI (scripts/setup --tests installs it)")
  set_tests_properties(ranks.Mpi PROPERTIES LABELS ranks SKIP_REGULAR_EXPRESSION SKIPPED)
  return()
endif()
file(GLOB sources CONFIGURE_DEPENDS mpi/*_test.cpp)
add_executable(ingot_test_mpi mpi/main.cpp support/world_checks.cpp support/small_models.cpp support/parity.cpp
               support/layout_parity.cpp ${sources})
target_link_libraries(ingot_test_mpi PRIVATE ingot_core GTest::gtest)
target_include_directories(ingot_test_mpi PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
# More ranks than cores, as root in a container, and without reading another process's memory, which containers forbid.
# Ranks poll for each other: yielding while they do leaves the cores to the tests beside them, and to each other.
# The folder for its own files follows: mpiruns that share one remove it under each other's feet.
set(INGOT_MPI_ENVIRONMENT OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1
    OMPI_MCA_orte_tmpdir_base=)
foreach(ranks 2 3 4 8)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/mpi${ranks})
  add_test(NAME ranks.Mpi${ranks} COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:ingot_test_mpi>)
  set_tests_properties(ranks.Mpi${ranks} PROPERTIES LABELS ranks TIMEOUT ${limit} PROCESSORS 2
                       ENVIRONMENT "${INGOT_TEST_ENVIRONMENT};${INGOT_MPI_ENVIRONMENT}${CMAKE_CURRENT_BINARY_DIR}/mpi${ranks};INGOT_EXPECT_RANKS=${ranks}")
endforeach()
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/mpi-bound)
add_test(NAME ranks.MpiBound COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 2 env "INGOT_CORES=0$<SEMICOLON>0"
         $<TARGET_FILE:ingot_test_mpi> --gtest_filter=MpiWorld.*)
set_tests_properties(ranks.MpiBound PROPERTIES LABELS ranks TIMEOUT 60
                     ENVIRONMENT "${INGOT_TEST_ENVIRONMENT};${INGOT_MPI_ENVIRONMENT}${CMAKE_CURRENT_BINARY_DIR}/mpi-bound;INGOT_EXPECT_RANKS=2")

# As between nodes.
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/mpi-apart)
add_test(NAME ranks.MpiApart COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} 3 $<TARGET_FILE:ingot_test_mpi> --gtest_filter=MpiWorld.*)
set_tests_properties(ranks.MpiApart PROPERTIES LABELS ranks TIMEOUT 120 PROCESSORS 2
                     ENVIRONMENT "${INGOT_TEST_ENVIRONMENT};${INGOT_MPI_ENVIRONMENT}${CMAKE_CURRENT_BINARY_DIR}/mpi-apart;INGOT_EXPECT_RANKS=3;INGOT_SHARED_MEMORY=off")

add_executable(ingot_fault_program mpi/fault_program.cpp)
target_link_libraries(ingot_fault_program PRIVATE ingot_core)
add_executable(ingot_test_mpi_runs mpi/fault_cases.cpp mpi/launch_cases.cpp mpi/run_cases.cpp)
target_link_libraries(ingot_test_mpi_runs PRIVATE ingot_test_main)
list(JOIN INGOT_MPI_ENVIRONMENT " " environment)
target_compile_definitions(ingot_test_mpi_runs PRIVATE INGOT_MPIEXEC="${MPIEXEC_EXECUTABLE}" INGOT_MPI_ENVIRONMENT="env ${environment}"
                           INGOT_FAULT_PROGRAM="$<TARGET_FILE:ingot_fault_program>")
add_dependencies(ingot_test_mpi_runs ingot_fault_program)

find_program(INGOT_PYTHON python3)
set(bench ${CMAKE_COMMAND} -E echo "SKIPPED: no python3")
set(bench_plan ${bench})
if(INGOT_PYTHON)
  set(bench ${INGOT_PYTHON} ${CMAKE_SOURCE_DIR}/bench/parallel.py $<TARGET_FILE:ingot> --small --rounds 1 --steps 6)
  set(bench_plan ${INGOT_PYTHON} ${CMAKE_SOURCE_DIR}/bench/plan.py $<TARGET_FILE:ingot> dense dense-copies-2 moe-experts-2 --small
      --checkpoints --rounds 1 --steps 4)
endif()
add_test(NAME ranks.BenchParallelRuns COMMAND ${bench})
add_test(NAME ranks.BenchPlanRuns COMMAND ${bench_plan})
set_tests_properties(ranks.BenchParallelRuns ranks.BenchPlanRuns PROPERTIES LABELS ranks TIMEOUT 300 PROCESSORS 2 SKIP_REGULAR_EXPRESSION "^SKIPPED")

# Faults in every phase take a few seconds each, most of it waiting: with the other faults.
add_executable(ingot_run_fault_program mpi/run_fault_program.cpp)
target_link_libraries(ingot_run_fault_program PRIVATE ingot_test_main)
add_executable(ingot_test_mpi_faults mpi/phase_cases.cpp)
target_link_libraries(ingot_test_mpi_faults PRIVATE ingot_test_main)
target_compile_definitions(ingot_test_mpi_faults PRIVATE INGOT_MPIEXEC="${MPIEXEC_EXECUTABLE}" INGOT_MPI_ENVIRONMENT="env ${environment}"
                           INGOT_RUN_FAULT_PROGRAM="$<TARGET_FILE:ingot_run_fault_program>")
add_dependencies(ingot_test_mpi_faults ingot_run_fault_program)
gtest_discover_tests(ingot_test_mpi_faults TEST_PREFIX "faults." PROPERTIES LABELS faults TIMEOUT 60
                     DISCOVERY_TIMEOUT 60)
gtest_discover_tests(ingot_test_mpi_runs TEST_PREFIX "ranks." PROPERTIES LABELS ranks TIMEOUT ${limit}
                     ENVIRONMENT "${INGOT_TEST_ENVIRONMENT}" DISCOVERY_TIMEOUT 60)
