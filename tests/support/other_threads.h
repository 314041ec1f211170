// Another number of threads, for tests that compare results between numbers: CTest starts each test with one
// thread, since tests run beside each other; a person starts them with as many as there are cores.
#pragma once

#include "base/parallel.h"

namespace ingot::test {

/// In scope: kernels run on one thread where they had several, and on three where they had one.
class OtherThreads {
 public:
  OtherThreads() { set_num_threads(before_ == 1 ? 3 : 1); }
  ~OtherThreads() { set_num_threads(before_); }
  OtherThreads(const OtherThreads&) = delete;
  OtherThreads& operator=(const OtherThreads&) = delete;

 private:
  const int before_ = num_threads();
};

}  // namespace ingot::test
