// `ingot burnin`: works a machine hard for a while and checks what it computes, keeps, stores and sends.
// Every result has known bits, so that a wrong one is found as well as a slow one. For a machine before a
// long run, for a replacement, and for a suspect of `ingot guard`.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "measure/doctor.h"

namespace ingot {

struct BurnInOptions {
  double seconds = 4;                      ///< of products, half in fp32 and half of bf16 operands
  double memory_share = 0.1;               ///< of the free memory that patterns go through, 64 MiB at least
  int64_t disk_bytes = int64_t{64} << 20;  ///< written and read back; 0: none
  std::string folder = ".";                ///< where
  double least_gflops = 0;                 ///< of fp32 products, all threads; 0: whatever the machine does
  double least_window = 0.8;               ///< of the median rate, in the slowest window of half a second
  double least_share = 0.9;                ///< of the processor time of all threads that the process gets
  int64_t link_bytes = int64_t{4} << 20;   ///< of a message between two ranks
  double least_link = 0.5;                 ///< of the median speed, of the slowest rank
  /// For tests: sees, and may change, what a round has computed.
  std::function<void(std::span<float> product, int64_t round)> disturb;
};

/// Seconds, minutes, half an hour, two hours: more products, and more of the memory. `level` from 1 to 4.
BurnInOptions burn_in_level(int level);

/// Products (bits, rate, processor time), memory and the disk of this machine; a finding each. Starts kernels
/// on all threads.
std::vector<Finding> burn_in(const BurnInOptions& options);

/// The links between all ranks: each message arrives with its bits, and no rank is much slower than the
/// median. Every rank gets the same finding.
Finding burn_in_links(World& world, const BurnInOptions& options);

/// burn_in() of every rank, whose topics then name the rank and its host, and the links. Ranks of one machine
/// share its memory, and what they take of the processor is not judged. Every rank gets all findings.
std::vector<Finding> burn_in_ranks(World& world, BurnInOptions options);

}  // namespace ingot
