// Ten thousand problems of every environment, over all difficulties: each teacher's solution is right by the
// verifier, and the checks in its trace say so.
#include <gtest/gtest.h>

#include "environments/environment.h"
#include "support/environment_names.h"

namespace ingot::environments::solutions_oracle_test {

TEST(EnvironmentSolutions, TenThousandOfEachAreRight) {
  for (const std::string& name : test::built_in_environments()) {
    const EnvironmentPointer environment = find_environment(name);
    const DifficultyRange range = environment->difficulty();
    const int64_t width = range.most - range.least + 1;
    int64_t wrong = 0;
    for (uint64_t number = 0; number < 10'000; ++number) {
      const Problem problem =
          environment->make(number % 7, number, range.least + static_cast<int64_t>(number) % width);
      const auto style = static_cast<TraceStyle>(number / static_cast<uint64_t>(width) % 4);
      const auto reply = environment->solve(problem, Random(number, RandomPurpose::test), style);
      if (environment->judge(problem, *reply).reward == 1) continue;
      if (++wrong < 5) ADD_FAILURE() << problem.id();
    }
    EXPECT_EQ(wrong, 0) << name;
  }
}

}  // namespace ingot::environments::solutions_oracle_test
