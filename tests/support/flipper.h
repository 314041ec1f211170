// One bit of a rank's memory changed at a chosen step of a run, as failing hardware does it.
#pragma once
#include <string>

#include "base/enum.h"
#include "train/trainer.h"

namespace ingot::test {

enum class FlipPlace {
  weight,      ///< before the step
  gradient,    ///< summed over ranks, before the update
  moment,      ///< optimizer state, before the step
  activation,  ///< of the passes
  replayed,    ///< an activation while another rank's gradient is made again
  core         ///< activations of every pass from the step on: a core that computes wrongly
};
constexpr auto enum_names(FlipPlace) {
  return names_in_order<FlipPlace>("weight", "gradient", "moment", "activation", "replayed", "core");
}

/// Give it to Trainer::observe() of the rank whose memory fails. Element and bit follow from `seed`; of an
/// activation a high bit of the mantissa, so that the step notices.
class Flipper final : public RunObserver {
 public:
  Flipper(Trainer& trainer, FlipPlace place, int64_t step, uint64_t seed)
      : trainer_(trainer), place_(place), step_(step), seed_(seed) {}
  void enters(StepPart part) override;
  void tensor(const std::string& name, const Tensor& value) override;
  bool struck() const { return struck_; }

 private:
  void strike();
  bool hits_activation();
  Trainer& trainer_;
  const FlipPlace place_;
  const int64_t step_;
  const uint64_t seed_;
  StepPart part_ = StepPart::data;
  int64_t seen_ = 0;  // activations of the part
  bool struck_ = false;
};

}  // namespace ingot::test
