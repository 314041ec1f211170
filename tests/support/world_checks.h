// Checks that every World must pass, as functions that each rank calls: thread ranks (tests/comm/) and
// processes (tests/mpi/) run the same checks.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "comm/world.h"

namespace ingot::test {

using Ranks = std::vector<int>;

inline Ranks everyone(int n) {
  Ranks r;
  for (int i = 0; i < n; ++i) r.push_back(i);
  return r;
}

template <class T>
Tensor tensor(std::vector<T>& v) {
  return Tensor::of(v.data(), {static_cast<int64_t>(v.size())});
}

namespace world_checks {

/// Every collective on every type, from no element to more than one message holds; small integers, so exact.
void check_collectives(World& world);
/// The sum's bits are those of the fixed order, with one rounding for bf16, for small and large operands.
void check_order_of_sums(World& world);
/// Uneven rows, empty ones, padding; small and large rows.
void check_all_to_all(World& world);
/// Messages from rank 0 to 1, small and large; many are pending at once.
void check_messages(World& world);
/// A large message from rank 0 to 1, which computes meanwhile, arrives while it moves data along.
void check_progress(World& world);
/// Pending operations on overlapping groups, finished in another order than they were started.
void check_groups(World& world);
/// Of three ranks or more, the self-test names the one whose messages come late.
void check_slow_rank(World& world);

}  // namespace world_checks
}  // namespace ingot::test
