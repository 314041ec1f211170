// The log-probabilities of a reference as a safetensors file: keys [n, 2] i64 (source, document), begins [n +
// 1] i64, values f32, mismatched f64.
#pragma once
#include <string>

#include "base/file_system.h"
#include "post/preference/preference_source.h"

namespace ingot {

/// 32 hex digits over all values.
std::string reference_hash(const ReferenceLogprobs& reference);
/// Makes the folder where needed. Error where the disk refuses.
void write_reference(FileSystem& fs, const std::string& path, const ReferenceLogprobs& reference);
/// Error where the file is missing or no such file.
ReferenceLogprobs read_reference(FileSystem& fs, const std::string& path);

}  // namespace ingot
