// See register.h.
#include "post/register.h"

#include "post/preference/preference_kind.h"
#include "post/rl/rl_kind.h"
#include "train/phase_kind.h"

namespace ingot {

void register_post() {
  static const bool done = [] {
    register_phase_kind(preference_kind());
    register_phase_kind(own_preference_kind());
    register_phase_kind(rl_kind());
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace ingot
