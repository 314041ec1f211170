// A fiber takes turns with the thread that enters it, with exceptions of its own.
#include "base/fiber.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "base/error.h"

namespace ingot::test::fiber_test {

TEST(Fiber, TakesTurnsUntilItsWorkEnds) {
  std::string turns;
  Fiber fiber;
  EXPECT_TRUE(fiber.has_ended());
  for (const char name : {'a', 'b'}) {  // the stack is used again
    fiber.start([&] {
      for (int i = 0; i < 3; ++i) turns += name, fiber.leave();
      turns += '!';
    });
    while (!fiber.has_ended()) turns += '-', fiber.enter();
  }
  EXPECT_EQ(turns, "-a-a-a-!-b-b-b-!");
  EXPECT_THROW(fiber.enter(), InternalError);
}

/// Leaves its turn in a destructor while an exception passes.
struct Leaves {
  Fiber& fiber;
  ~Leaves() { fiber.leave(); }
};

TEST(Fiber, ExceptionsBelongToTheirStack) {
  Fiber fiber;
  int unfinished = -1;
  std::string caught;
  fiber.start([&] {
    try {
      const Leaves leaves{fiber};
      throw std::runtime_error("of the fiber");
    } catch (const std::exception& e) {
      fiber.leave();
      caught += e.what();
    }
  });
  fiber.enter();  // until the destructor
  unfinished = std::uncaught_exceptions();
  try {
    fiber.enter();  // until the handler
    throw std::runtime_error("of the thread");
  } catch (const std::exception& e) {
    fiber.enter();  // to the end
    EXPECT_STREQ(e.what(), "of the thread");
  }
  EXPECT_EQ(unfinished, 0);
  EXPECT_EQ(std::uncaught_exceptions(), 0);
  EXPECT_EQ(caught, "of the fiber");
  EXPECT_TRUE(fiber.has_ended());
}

int deep(int n) {
  volatile char page[4096] = {};
  page[0] = static_cast<char>(n);
  return n == 0 ? page[0] : deep(n - 1) + page[0] * 0 + 1;
}

TEST(Fiber, HasTheStackThatWasAskedFor) {
  Fiber fiber(size_t{4} << 20);
  int found = 0;
  fiber.start([&] { found = deep(700); });
  fiber.enter();
  EXPECT_EQ(found, 700);
}

TEST(Fiber, TakesAddressesWhenItStarts) {
  Fiber fiber(size_t{1} << 60);  // more than there are
  bool has_run = false;
  try {
    fiber.start([&] { has_run = true; });
    ADD_FAILURE() << "it started";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("no memory for a stack"), std::string::npos);
  }
  EXPECT_TRUE(fiber.has_ended());
  EXPECT_THROW(fiber.enter(), InternalError);
  EXPECT_FALSE(has_run);
}

}  // namespace ingot::test::fiber_test
