# Jobs of a real Slurm, which with_slurm starts. One test, which reports where Slurm or MPI is missing.
if(NOT MPI_CXX_FOUND)
  add_test(NAME slurm.Jobs
           COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: built without MPI (scripts/setup --tests installs it)")
else()
  add_executable(ingot_test_slurm slurm/job_cases.cpp slurm/guard_cases.cpp slurm/slurm_run.cpp)
  target_link_libraries(ingot_test_slurm PRIVATE ingot_test_main)
  add_test(NAME slurm.Jobs
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/slurm/with_slurm $<TARGET_FILE:ingot_test_slurm>)
endif()
# Containers forbid reading another process's memory. Ranks poll for each other: yielding while they do leaves the cores to
# the tests beside them, and to each other.
set_tests_properties(
  slurm.Jobs PROPERTIES LABELS slurm TIMEOUT 1800 COST 1000 SKIP_REGULAR_EXPRESSION "^SKIPPED"
                        ENVIRONMENT "OMPI_MCA_btl_vader_single_copy_mechanism=none;OMPI_MCA_mpi_yield_when_idle=1")
