// The list of all ops. The tape runs any op that it is given; the list is for what looks at all of them:
// tests, the list of kernels, names in recipes, and the fingerprint. Register before anything runs; reading
// is thread-safe.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "tape/op.h"

namespace ingot {

/// Every op of the system, in a fixed order. The registry test fails if an op's folder is missing here.
const std::vector<const Op*>& all_ops();

/// Adds an op of a program that uses the library (docs/extend-op.md). The op must live as long as the
/// program. Register before anything runs, because the fingerprint of runs contains every op. Error if the
/// name is taken.
void register_op(const Op& op);

/// Hash of what decides the bits of results on a device: the ops, the order of the CPU's kernels, and, where
/// products read bf16 (`compute`), those kernels of the device that do not have the CPU's bits and are on.
/// Without any of these it is the CPU's. Not in it: ops with Op::has_bits_of_a_format. Recorded in runs and
/// checkpoints.
std::string kernel_set_fingerprint(DType compute, DeviceKind device = compute_device());
/// The same of these ops alone, in bf16.
std::string kernel_set_fingerprint(std::span<const Op* const> ops, DeviceKind device);

}  // namespace ingot
