// Makes models from models without training: the average of several, or a mixture of experts from a dense
// one. The result is a folder like that of an import, with one checkpoint and its tokenizer, and works
// wherever an import does (generate, export, finetune, run.start_from). See docs/exchange.md and docs/moe.md.
#pragma once
#include <string>
#include <vector>

#include "base/file_system.h"
#include "models/upcycle.h"

namespace ingot {

/// The last `count` complete checkpoints of a run folder (or folder of checkpoints), oldest first. Throws
/// Error if there are fewer.
std::vector<std::string> last_checkpoints(FileSystem& fs, const std::string& run, int64_t count);

/// The weights of an exponential moving average over n models in order: a_1 = w_1, a_i = decay a_{i-1} + (1 -
/// decay) w_i, with 0 <= decay < 1.
std::vector<double> moving_average_weights(size_t n, double decay);

/// Writes the weighted mean of the models' tensors to the new folder `out`, with the last model's tokenizer
/// and small files, and returns the checkpoint's path. Weights are divided by their sum (empty: all equal);
/// sums are in double, results in f32. Takes the memory of one f32 copy of the weights. Throws Error for
/// fewer than two models, weights that are not positive, different architectures or tokenizers, adapters,
/// values that are not finite, and if `out` holds a model already.
std::string average_models(FileSystem& fs, const std::vector<std::string>& models,
                           std::vector<double> weights, const std::string& out);

/// Upcycles a dense model (models/upcycle.h) from one folder to another. Takes the memory of both models in
/// f32.
std::string upcycle_model(FileSystem& fs, const std::string& dense, const UpcycleOptions& options,
                          uint64_t seed, const std::string& out);

}  // namespace ingot
