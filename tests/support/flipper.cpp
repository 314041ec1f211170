// See flipper.h.
#include "support/flipper.h"

#include <vector>

#include "base/philox.h"

namespace ingot::test {
namespace {

void flip(const Tensor& t, int64_t element, uint64_t bit) {
  static_cast<unsigned char*>(t.data)[element * size_of(t.dtype()) + static_cast<int64_t>(bit / 8)] ^=
      static_cast<unsigned char>(1U << (bit % 8));
}

}  // namespace

void Flipper::enters(StepPart part) {
  part_ = part;
  seen_ = 0;
  const bool at_rest = place_ == FlipPlace::weight || place_ == FlipPlace::moment;
  if (struck_ || place_ >= FlipPlace::activation || trainer_.step() + 1 != step_) return;
  if (part == (at_rest ? StepPart::data : StepPart::optimizer)) strike();
}

void Flipper::strike() {
  std::vector<Tensor> places;
  TrainEngine& engine = trainer_.engine();
  for (const ParamView& p : engine.optimizer().params()) {
    if (place_ == FlipPlace::weight)
      places.emplace_back(p.master.data, Shape{p.numel()}, dtype_of(p.master.storage));
    if (place_ == FlipPlace::gradient)
      places.emplace_back(p.grad.data, Shape{p.numel()}, dtype_of(p.grad.storage));
  }
  if (place_ == FlipPlace::moment)
    engine.visit_parameter_state([&](const TrainEngine::ParameterState& s) { places.push_back(s.values); });
  int64_t elements = 0;
  for (const Tensor& t : places) elements += t.numel();
  const Random random(seed_, RandomPurpose::test, 71);
  auto at = static_cast<int64_t>(random.below(0, static_cast<uint64_t>(elements)));
  size_t i = 0;
  while (at >= places[i].numel()) at -= places[i++].numel();
  flip(places[i], at, random.below(1, 8 * static_cast<uint64_t>(size_of(places[i].dtype()))));
  struck_ = true;
}

/// Whether the present activation is to change.
bool Flipper::hits_activation() {
  ++seen_;
  const int64_t step = trainer_.step() + 1;
  if (place_ == FlipPlace::core) return step >= step_ && seen_ % 8 == 3;
  const StepPart part = place_ == FlipPlace::replayed ? StepPart::replay : StepPart::passes;
  return !struck_ && step == step_ && part_ == part && seen_ >= 3;
}

void Flipper::tensor(const std::string&, const Tensor& value) {
  if (place_ < FlipPlace::activation || value.dtype() != DType::f32 || value.numel() < 64) return;
  if (!hits_activation()) return;
  const Random random(seed_, RandomPurpose::test, 72);
  flip(value, static_cast<int64_t>(random.below(0, static_cast<uint64_t>(value.numel()))), 22);
  struck_ = true;
}

}  // namespace ingot::test
