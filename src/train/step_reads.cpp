// See step_reads.h.
#include "train/step_reads.h"

#include <exception>
#include <utility>

namespace ingot {

StepReads::~StepReads() {
  if (kept_.empty() && copies_.empty()) return;
  try {
    wait();
  } catch (...) {  // what a kernel threw: whoever reads its results learns of it
  }
}

void StepReads::read(std::initializer_list<Tensor> tensors, Use use) {
  Read read{{}, std::move(use)};
  for (const Tensor& t : tensors) {
    read.tensors.push_back(t);
    if (!t.defined() || t.on_host()) continue;
    static char nothing;  // an empty tensor has no bytes but is defined
    read.tensors.back() = Tensor(&nothing, t.meta);
    if (t.bytes() == 0) continue;
    const HostBlock& copy = copies_.emplace_back(device_, t.bytes());
    device_.begin_download(copy.data(), t.data, t.bytes(), StreamRole::compute);
    read.tensors.back() = Tensor(copy.data(), t.meta);
  }
  if (device_.kind() == DeviceKind::cpu)
    read.use(read.tensors);
  else
    reads_.push_back(std::move(read));
}

void StepReads::wait() {
  if (device_.kind() != DeviceKind::cpu) device_.synchronize(device_.record(StreamRole::compute));
}

void StepReads::finish() {
  wait();
  kept_.clear();
  for (const Read& read : std::exchange(reads_, {})) read.use(read.tensors);
  copies_.clear();
}

}  // namespace ingot
