// A job for a guard: a run on ranks of this process in which one bit of a rank's memory changes in the first
// start (support/flipper.h):
//   flip_program RECIPE RANKS PLACE RANK STEP SEED [--from STEP]
// Exit codes are those of `ingot run`.
#include <fmt/core.h>

#include <cstdlib>
#include <string>

#include "support/digest_run.h"
#include "train/run_failure.h"

int main(int argc, char** argv) {
  using namespace ingot;
  if (argc < 7) return 2;
  try {
    const std::string option = argc > 8 ? argv[7] : "";
    test::Flip flip{.place = enum_from<test::FlipPlace>(argv[3], "place"),
                    .rank = std::atoi(argv[4]),
                    .step = guard_start() == 1 ? std::atoll(argv[5]) : 0,
                    .seed = static_cast<uint64_t>(std::atoll(argv[6]))};
    test::run_with_flip(argv[1], {}, std::atoi(argv[2]), flip, option == "--from" ? std::atoll(argv[8]) : -1);
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "error: {}\nhint: {}\n", e.what(), e.hint());
    return 1;
  }
}
