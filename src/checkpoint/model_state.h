// What a checkpoint holds of a model, and how it comes back: weights by parameter name, router biases as buffers, the
// model's config as a blob. Loading into another layout reads other regions of the same tensors.
#pragma once
#include <functional>

#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "models/model.h"

namespace ingot {

/// Pieces of masters and biases. The model must stay unchanged until the save took its snapshot.
std::vector<Piece> model_pieces(Model& model);
/// Those of the router biases alone.
std::vector<Piece> bias_pieces(Model& model);
/// A configuration as a blob ({"toml": text}), and back; Error where the blob is none.
std::string config_blob(const std::string& toml);
std::string config_of_blob(const CheckpointReader& reader, const std::string& name);
/// The model's config: the blob "model".
ModelConfig stored_model_config(const CheckpointReader& reader);
/// Content hash of the tokenizer that the model was trained with: in the blob "trainer".
std::string stored_tokenizer_hash(const CheckpointReader& reader);
/// Fills weights (with compute copies) and biases; the adapters of a model keep their values where the checkpoint's model
/// has none. Error that lists every missing, unexpected or misshapen tensor, and
/// one that names the tensor for a NaN or infinity in a weight.
void load_model(const CheckpointReader& reader, Model& model);
/// The same, parameter by parameter: `loaded` is told of each when its master is there, and makes of it what it wants.
void load_model(const CheckpointReader& reader, Model& model, const std::function<void(int)>& loaded);

}  // namespace ingot
