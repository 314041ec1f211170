// Saves and loads a model's part of a checkpoint: weights by parameter name, router biases as buffers, the
// config as a blob. A rank of another layout loads other regions of the same tensors.
#pragma once
#include <functional>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "models/model.h"

namespace ingot {

/// The master weights and router biases of a rank. The model must stay unchanged until the save took its
/// snapshot.
std::vector<Piece> model_pieces(Model& model);
/// The router biases alone.
std::vector<Piece> bias_pieces(Model& model);
/// A configuration as a blob ({"toml": text}), and back. Throws Error if the blob is not a configuration.
std::string config_blob(const std::string& toml);
std::string config_of_blob(const CheckpointReader& reader, const std::string& name);
/// The model's config, from the blob "model".
ModelConfig stored_model_config(const CheckpointReader& reader);
/// The content hash of the tokenizer that the model was trained with, from the blob "trainer".
std::string stored_tokenizer_hash(const CheckpointReader& reader);
/// Fills master weights, compute copies and router biases. Adapters keep their values if the checkpoint's
/// model has none. Throws an Error that lists every missing, unexpected or misshapen tensor, and one that
/// names a weight with a NaN or infinity.
void load_model(const CheckpointReader& reader, Model& model);
/// The same, but calls `loaded(i)` when the master of parameter i is in memory, instead of making compute
/// copies.
void load_model(const CheckpointReader& reader, Model& model, const std::function<void(int)>& loaded);

}  // namespace ingot
