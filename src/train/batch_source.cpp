// See batch_source.h.
#include "train/batch_source.h"

#include "base/error.h"

namespace ingot {

void BatchSource::restore(const std::string& state, const std::string& where) {
  if (!state.empty()) fail("'{}': the state 'source' is not one of this kind of phase", where);
}

data::Batch SampledSource::next(int64_t step) {
  if (!loader_ || loader_->next_step() != step)
    loader_ = std::make_unique<data::PrefetchLoader>([this](int64_t s) { return sampler_.batch(s); }, step);
  return loader_->next();
}

}  // namespace ingot
