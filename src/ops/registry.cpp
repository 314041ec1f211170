// The list of all ops. An op's folder that is not listed here fails the registry test.
#include "ops/add_norm/add_norm.h"

namespace ingot {

const std::vector<const Op*>& all_ops() {
  static const std::vector<const Op*> ops = {
      &add_norm_op(),
  };
  return ops;
}

}  // namespace ingot
