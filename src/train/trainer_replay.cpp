// What is compared before the update of a step, and steps of another run made again. See trainer.h, and
// replay.h for what becomes of the latter's digests.
#include "train/trainer.h"

namespace ingot {

namespace {

/// On a device the judge of a step comes after its update.
bool checks_rest_early() {
  return compute_device() != DeviceKind::cpu;
}

}  // namespace

void Trainer::begin_digests(const data::Batch& batch, StepCall& call) {
  if (checks_rest_early()) digests_->check_rest(step());
  call.options.observer = observer_;
  if (digests_->replays(step() + 1)) {
    enter(StepPart::replay);
    digests_->begin_replay(batch, call.options);
  }
  call.options.own_digest = digests_->begin_step(step() + 1);
}

void Trainer::check_digests(const data::Batch& batch, const StepCall& call) {
  if (!checks_rest_early()) digests_->check_rest(step());
  if (digests_->replays(step() + 1)) digests_->end_replay(step(), batch, call.options);
}

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
