// The heap's arena: blocks are used again for smaller ones, and what nobody uses stays bounded however sizes
// change, as they do from call to call of an engine.
#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include "support/support.h"
#include "tensor/borrowed_arena.h"

namespace ingot::test::arena_test {

int64_t resident_bytes() {
  std::istringstream status(read_text("/proc/self/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}

TEST(HeapArena, ABlockIsUsedAgainForASmallerOneOnly) {
  HeapArena arena;
  const Block first = arena.allocate(10000, "test");
  arena.release(first);
  const Block smaller = arena.allocate(6000, "test");
  EXPECT_EQ(smaller.data, first.data);
  EXPECT_EQ(arena.live_bytes(), round_up_block(6000)) << "what was asked for counts";
  arena.release(smaller);
  const Block tiny = arena.allocate(100, "test"), whole = arena.allocate(10000, "test");
  EXPECT_NE(tiny.data, first.data) << "a hundredth would waste the rest";
  EXPECT_EQ(whole.data, first.data) << "it has kept its size";
  arena.release(tiny), arena.release(whole);
  EXPECT_EQ(arena.live_bytes(), 0);
  const Block none = arena.allocate(0, "test");
  arena.release(none);
}

TEST(HeapArena, WhatNobodyUsesIsBounded) {
  constexpr int64_t kStep = 256 << 10, kSteps = 64;
  HeapArena arena;
  const int64_t before = resident_bytes();
  for (int64_t i = 1; i <= kSteps; ++i) {  // each larger than all before: 520 MiB together
    const Block block = arena.allocate(i * kStep, "test");
    std::memset(block.data, 1, static_cast<size_t>(block.bytes));
    arena.release(block);
  }
  EXPECT_LE(resident_bytes() - before, 3 * kSteps * kStep + (8 << 20));
}

/// What fits lies in the memory without overlap, in gaps too; what does not is on the heap.
TEST(BorrowedArena, UsesTheMemoryWhileItHasRoom) {
  alignas(64) std::byte memory[1024];
  HeapArena heap;
  {
    BorrowedArena arena(memory, heap);
    const auto inside = [&](const Block& b) { return b.data >= memory && b.data < memory + sizeof memory; };
    const Block first = arena.allocate(300, "test"), second = arena.allocate(500, "test"),
                beyond = arena.allocate(500, "test"), none = arena.allocate(0, "test");
    EXPECT_TRUE(inside(first) && inside(second));
    EXPECT_GE(static_cast<std::byte*>(second.data), static_cast<std::byte*>(first.data) + 320);
    EXPECT_FALSE(inside(beyond));
    EXPECT_EQ(arena.live_bytes(), 320 + 512 + 512);
    EXPECT_EQ(heap.live_bytes(), 512);
    arena.release(first);
    const Block again = arena.allocate(310, "test");
    EXPECT_EQ(again.data, first.data);
    for (const Block& b : {again, second, beyond, none}) arena.release(b);
    const Block whole = arena.allocate(sizeof memory, "test");
    EXPECT_EQ(whole.data, memory) << "gaps have become one";
    arena.release(whole);
    EXPECT_EQ(arena.live_bytes(), 0);
  }
  BorrowedArena nothing({}, heap);
  const Block block = nothing.allocate(64, "test");
  EXPECT_EQ(heap.live_bytes(), 64);
  nothing.release(block);
}

TEST(PlannedArena, ABlockThatItsPlanHasNotIsOnTheHeap) {
  PlannedArena arena(MemoryPlan{});
  const Block a = arena.allocate(1000, "test"), b = arena.allocate(2000, "test");
  std::memset(a.data, 1, 1000);
  std::memset(b.data, 2, 2000);
  arena.release(b);
  const Block again = arena.allocate(1500, "test");
  EXPECT_EQ(again.data, b.data);
  EXPECT_EQ(arena.live_bytes(), round_up_block(1000) + round_up_block(1500));
  arena.release(a), arena.release(again);
  EXPECT_EQ(arena.live_bytes(), 0);
}

}  // namespace ingot::test::arena_test
