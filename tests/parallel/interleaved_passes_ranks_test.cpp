// Interleaved passes of one rank: which one runs follows from where they wait, collectives of two ranks meet,
// and an error in one ends the other.
#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/threads.h"
#include "parallel/interleaved_passes.h"

namespace ingot::interleaved_passes_ranks_test {

TEST(InterleavedPasses, YieldWhereTheyWaitAndCollectivesMeet) {
  std::string turns[2];
  run_ranks(2, [&](ThreadRank& self) {
    const auto group = self.group("test", {0, 1});
    InterleavedPasses passes;
    Communicator* const c = passes.yield_while_waiting(group.get());
    EXPECT_EQ(c, passes.yield_while_waiting(group.get()));
    EXPECT_EQ(passes.yield_while_waiting(nullptr), nullptr);
    std::string& log = turns[self.rank()];
    const auto pass = [&](char name, int steps) {
      for (int i = 0; i < steps; ++i) {
        double x = name + i + self.rank();
        const Tensor t = Tensor::of(&x, {1});
        Pending p = c->all_reduce(t, t);
        log += name;
        p.wait();
        EXPECT_EQ(x, 2 * (name + i) + 1);
      }
    };
    pass('-', 1);
    passes.run([&] { pass('a', 4); }, [&] { pass('b', 2); });
    EXPECT_EQ(passes.waits().all, 7);
    EXPECT_EQ(passes.waits().hidden, 5);  // nobody is left to run during the last two of a
    passes.run([&] { pass('c', 1); }, [] {});
  });
  EXPECT_EQ(turns[0], "-ababaac");
  EXPECT_EQ(turns[1], turns[0]);
}

/// a, b wait for experts of all nodes, inside a node, for tensor ranks: A, B; I; t. A pass that comes to a
/// shorter wait continues until it comes to one that is as long as the other's.
TEST(InterleavedPasses, AShorterWaitThanTheOthersYieldsNothing) {
  const auto turns = [](const std::string& a, const std::string& b) {
    std::string log;
    run_ranks(2, [&](ThreadRank& self) {
      const auto far = self.group("expert across nodes", {0, 1}),
                 near = self.group("expert inside a node", {0, 1}), tensor = self.group("tensor", {0, 1});
      InterleavedPasses passes;
      const auto pass = [&](const std::string& waits) {
        for (const char name : waits) {
          const auto& group = name == 't' ? tensor : name == 'I' ? near : far;
          double x = name;
          const Tensor t = Tensor::of(&x, {1});
          Pending p = passes.yield_while_waiting(group.get())->all_reduce(t, t);
          if (self.rank() == 0) log += name;
          p.wait();
          EXPECT_EQ(x, 2 * name);
        }
      };
      passes.run([&] { pass(a); }, [&] { pass(b); });
    });
    return log;
  };
  EXPECT_EQ(turns("AAA", "BBB"), "ABABAB");
  EXPECT_EQ(turns("AAA", "ttIBttB"), "AttIBAttBA");
  EXPECT_EQ(turns("tAt", "tIt"), "ttAItt");
  EXPECT_EQ(turns("IAt", "IttIt"), "IIAttItt");
}

TEST(InterleavedPasses, AnErrorInOneEndsTheOther) {
  for (const bool in_first : {true, false}) {
    InterleavedPasses passes;
    const auto group = self_communicator("self");
    Communicator* const c = passes.yield_while_waiting(group.get());
    bool went_on = false;
    const auto bad = [&] { fail("a shape"); };
    const auto good = [&] {
      double x = 1;
      for (int i = 0; i < 2; ++i) c->all_reduce(Tensor::of(&x, {1}), Tensor::of(&x, {1})).wait();
      went_on = true;
    };
    try {
      if (in_first)
        passes.run(bad, good);
      else
        passes.run(good, bad);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_STREQ(e.what(), "a shape");
    }
    EXPECT_FALSE(went_on);
    passes.run(good, [] {});
    EXPECT_TRUE(went_on);
  }
}

}  // namespace ingot::interleaved_passes_ranks_test
