// Steps of another run made again. See trainer.h, and replay.h for what becomes of their digests.
#include "train/trainer.h"

namespace ingot {

void Trainer::replay(int64_t steps, const std::function<bool(int64_t step)>& agrees,
                     const std::function<bool(const StepDigests&)>& made) {
  for (; steps > 0 && step() < recipe().total_steps(); --steps) {
    digests_->forget_rest();
    state_->enter_next_phase();
    state_->change_batch();
    train_step();
    if (!made(digests_->end_step(step(), agrees(step())))) break;
  }
  digests_->sync();
}

}  // namespace ingot
