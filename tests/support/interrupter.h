// Ends a run of a test as Ctrl-C does.
#pragma once
#include <string>

#include "train/trainer.h"

namespace ingot::test {

/// Interrupts the run before step `steps`, counted from 0 where it starts.
class Interrupter final : public RunObserver {
 public:
  explicit Interrupter(int steps) : left_(steps) {}
  void enters(StepPart part) override {
    if (part == StepPart::data && left_-- == 0) Trainer::interrupt();
  }
  bool wants_tensors() const override { return false; }
  void tensor(const std::string&, const Tensor&) override {}

 private:
  int left_;
};

}  // namespace ingot::test
