// Two strands of one rank: who runs follows from where they wait, collectives of two ranks meet, and an error
// in one ends the other.
#include "parallel/strands.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/threads.h"

namespace ingot::strands_test {

TEST(Strands, TakeTurnsWhereTheyWaitAndCollectivesMeet) {
  std::string turns[2];
  run_ranks(2, [&](ThreadRank& self) {
    const auto group = self.group("test", {0, 1});
    Strands strands;
    Communicator* const c = strands.hand_over_waiting_for(group.get());
    EXPECT_EQ(c, strands.hand_over_waiting_for(group.get()));
    EXPECT_EQ(strands.hand_over_waiting_for(nullptr), nullptr);
    std::string& log = turns[self.rank()];
    const auto strand = [&](char name, int steps) {
      for (int i = 0; i < steps; ++i) {
        double x = name + i + self.rank();
        const Tensor t = Tensor::of(&x, {1});
        Pending p = c->all_reduce(t, t);
        log += name;
        p.wait();
        EXPECT_EQ(x, 2 * (name + i) + 1);
      }
    };
    strand('-', 1);
    strands.run([&] { strand('a', 4); }, [&] { strand('b', 2); });
    EXPECT_EQ(strands.waits().all, 7);
    EXPECT_EQ(strands.waits().hidden, 5);  // nobody is left to run during the last two of a
    strands.run([&] { strand('c', 1); }, [] {});
  });
  EXPECT_EQ(turns[0], "-ababaac");
  EXPECT_EQ(turns[1], turns[0]);
}

TEST(Strands, AnErrorInOneEndsTheOther) {
  for (const bool in_first : {true, false}) {
    Strands strands;
    const auto group = self_communicator("self");
    Communicator* const c = strands.hand_over_waiting_for(group.get());
    bool went_on = false;
    const auto bad = [&] { fail("a shape"); };
    const auto good = [&] {
      double x = 1;
      for (int i = 0; i < 2; ++i) c->all_reduce(Tensor::of(&x, {1}), Tensor::of(&x, {1})).wait();
      went_on = true;
    };
    try {
      if (in_first)
        strands.run(bad, good);
      else
        strands.run(good, bad);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "a shape");
    }
    EXPECT_FALSE(went_on);
    strands.run(good, [] {});
    EXPECT_TRUE(went_on);
  }
}

}  // namespace ingot::strands_test
