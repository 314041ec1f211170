// Where a tape's buffers are: the legal transitions, and that every other one is refused.
#include "tape/slots.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "base/error.h"

namespace ingot::test::slots_test {

constexpr Residency kAll[] = {Residency::absent,    Residency::resident,    Residency::offloading,
                              Residency::offloaded, Residency::prefetching, Residency::packed};

/// Moves a new slot to a state by legal transitions.
void bring_to(Slots& slots, Slot& slot, Residency state) {
  if (state == Residency::absent) return;
  slots.allocate(slot, "test");
  if (state == Residency::resident) return;
  if (state == Residency::packed) {
    slots.allocate_packed(slot, {{64}, DType::u8});
    return slots.keep_packed(slot);
  }
  slots.move(slot, Residency::offloading);
  if (state == Residency::offloading) return;
  slots.free(slot, Residency::offloaded);
  if (state == Residency::prefetching) slots.allocate(slot, "test", Residency::prefetching);
}

TEST(Slots, OnlyTheTransitionsOfTheDrawingAreLegal) {
  const std::set<std::pair<Residency, Residency>> legal = {
      {Residency::absent, Residency::resident},       {Residency::resident, Residency::absent},
      {Residency::resident, Residency::offloading},   {Residency::offloading, Residency::resident},
      {Residency::offloading, Residency::offloaded},  {Residency::offloading, Residency::absent},
      {Residency::offloaded, Residency::prefetching}, {Residency::offloaded, Residency::absent},
      {Residency::prefetching, Residency::resident},  {Residency::prefetching, Residency::absent},
      {Residency::resident, Residency::packed},       {Residency::packed, Residency::resident},
      {Residency::packed, Residency::absent}};
  for (const Residency from : kAll)
    for (const Residency to : kAll) {
      SCOPED_TRACE(std::string(name_of(from)) + " to " + name_of(to));
      CountingArena arena;
      Slots slots(arena, DeviceKind::null);
      Slot& slot = slots[slots.add({{4}, DType::f32})];
      bring_to(slots, slot, from);
      ASSERT_EQ(slot.residency, from);
      EXPECT_EQ(is_legal_move(from, to), legal.count({from, to}) == 1);
      if (is_legal_move(from, to)) {
        slots.move(slot, to);
        EXPECT_EQ(slot.residency, to);
      } else {
        EXPECT_THROW(slots.move(slot, to), InternalError);
        EXPECT_EQ(slot.residency, from) << "a refused transition changes nothing";
      }
      EXPECT_EQ(slots.offloaded(), slot.residency == Residency::offloaded ? 1 : 0);
      slot.is_leaf = true;  // was moved without its buffer, which must not be freed
    }
}

TEST(Slots, ARefusedTransitionNamesBothStates) {
  HeapArena arena;
  Slots slots(arena, DeviceKind::cpu);
  Slot& slot = slots[slots.add({{4}, DType::f32})];
  try {
    slots.move(slot, Residency::prefetching);
    ADD_FAILURE() << "moved";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("absent cannot become prefetching"), std::string::npos) << e.what();
  }
}

TEST(Slots, BuffersFollowTheStateAndAreGivenBack) {
  HeapArena arena;
  {
    Slots slots(arena, DeviceKind::cpu);
    for (const Residency state : kAll) {
      const int64_t before = arena.live_bytes();
      const int32_t id = slots.add({{4}, DType::f32});
      bring_to(slots, slots[id], state);
      EXPECT_EQ(arena.live_bytes() - before, slots[id].holds_memory() ? 64 : 0) << name_of(state);
      if (slots[id].in_memory())
        EXPECT_NE(slots.tensor(id).data, nullptr) << name_of(state);
      else
        EXPECT_THROW(slots.tensor(id), InternalError) << name_of(state);
    }
    slots.allocate_gradient(slots[0]);
    const int32_t freed = slots.add({{4}, DType::f32});
    bring_to(slots, slots[freed], Residency::prefetching);
    slots.free(slots[freed]);
    EXPECT_EQ(slots[freed].residency, Residency::absent);
    const int64_t before = arena.live_bytes();
    Slot& packed = slots[slots.add({{32}, DType::f32})];
    bring_to(slots, packed, Residency::packed);
    EXPECT_EQ(arena.live_bytes() - before, 64) << "the packed form alone";
    slots.allocate(packed, "test");
    EXPECT_EQ(arena.live_bytes() - before, 128 + 64);
    slots.free_packed(packed);
    EXPECT_EQ(arena.live_bytes() - before, 128);
    bring_to(slots, slots[slots.add({{32}, DType::f32})], Residency::packed);
  }
  EXPECT_EQ(arena.live_bytes(), 0) << "with the tape";
}

TEST(Slots, AnEmptyTensorIsDefined) {
  HeapArena arena;
  Slots slots(arena, DeviceKind::cpu);
  const int32_t id = slots.add({{0, 4}, DType::f32});
  slots.allocate(slots[id], "test");
  EXPECT_TRUE(slots.tensor(id).defined());
  slots.allocate_gradient(slots[id]);
  EXPECT_TRUE(slots[id].gradient.tensor.defined());
}

}  // namespace ingot::test::slots_test
