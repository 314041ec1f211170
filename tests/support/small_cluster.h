// A cluster of nodes of four devices for tests of plans, with a device's memory as asked for.
#pragma once
#include <fmt/core.h>

#include "measure/cluster.h"

namespace ingot::test {

inline Cluster small_cluster(const char* memory) {
  return cluster_from_text(fmt::format("name = \"small\"\n[device]\nmemory = \"{}\"\nbandwidth = 3000.0\n"
                                       "launch_us = 4.0\nrates = {{ bf16 = 900.0, f32 = 60.0 }}\n"
                                       "[[links]]\nranks = 4\ngb_per_s = 300.0\nlatency_us = 2.0\n"
                                       "[[links]]\ngb_per_s = 45.0\nlatency_us = 5.0\n",
                                       memory),
                           "test");
}

}  // namespace ingot::test
