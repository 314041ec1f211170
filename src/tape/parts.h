// The parts of a tape, in the order in which each uses those before it. Internal to the tape.
#pragma once
#include <map>
#include <memory_resource>

#include "tape/saved_values.h"

namespace ingot {

struct Tape::Parts {
  Parts(Arena& arena, const TapeOptions& options) : state{arena, options} {}

  TapeState state;
  KernelCalls kernels{state};
  Transfers transfers{state, kernels, [this](int32_t id, Direction direction) {
                        if (direction == Direction::forward)
                          saved.release_if_unused(id);
                        else
                          gradients.on_unpinned(id);
                      }};
  Gradients gradients{state, transfers};
  Forward forward{state, kernels, transfers, gradients};
  SavedValues saved{state, kernels, transfers, forward};
  std::pmr::map<int, int32_t> parameters{state.slots.memory()};  ///< values by the index of the parameter
};

}  // namespace ingot
