// The recipe's section [memory]: what is kept for backward and what is not.
#pragma once
#include <string>
#include <vector>

#include "base/config.h"
#include "ops/head/head.h"

namespace ingot {

struct MemoryConfig {
  HeadMode head = HeadMode::automatic;
  std::string limit;
  std::vector<std::string> recompute, fp8, offload;
  std::string offload_folder;
  template <class Visitor>
  void visit(Visitor& v) {
    v("head", head, "logits for backward: auto, store, recompute or gradient");
    v("limit", limit,
      "memory of the run, e.g. 16GiB: activations are recomputed or moved to disk until it fits; empty: "
      "the machine's");
    v("recompute", recompute,
      "results that backward recomputes: op, op.output, module/, module/op, e.g. activation, experts/; with "
      "@even after the name in every second layer");
    v.fixed(
        "fp8", fp8,
        "results that wait in FP8 until backward, which reads them rounded, named alike, e.g. activation");
    v("offload", offload, "results that wait on disk until backward, named alike, e.g. add_norm.stream");
    v("offload_folder", offload_folder, "where they wait; empty: the run's folder");
  }
};

}  // namespace ingot
