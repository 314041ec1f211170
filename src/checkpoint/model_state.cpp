// See model_state.h.
#include "checkpoint/model_state.h"

#include <nlohmann/json.hpp>

#include "base/finite.h"
#include "checkpoint/parameter_part.h"

namespace ingot {
std::vector<Piece> model_pieces(Model& model) {
  std::vector<Piece> pieces;
  WeightSet& w = model.weights();
  for (int i = 0; i < w.size(); ++i) {
    add_part(pieces, w.table()[i].name, TensorKind::weight, {w.table()[i], w.placement(), w.master(i)});
  }
  for (Piece& p : bias_pieces(model)) pieces.push_back(std::move(p));
  return pieces;
}

std::vector<Piece> bias_pieces(Model& model) {
  std::vector<Piece> pieces;
  if (model.config().moe.balance != BalanceRule::none)
    for (const int64_t layer : model.decoder().moe_layers())
      pieces.push_back(
          Piece::whole(Model::router_bias_name(layer), TensorKind::buffer, model.router_bias(layer)));
  return pieces;
}

std::string config_blob(const std::string& toml) {
  return nlohmann::json{{"toml", toml}}.dump();
}

std::string config_of_blob(const CheckpointReader& reader, const std::string& name) {
  const auto json = nlohmann::json::parse(reader.blob(name), nullptr, false);
  if (!json.is_object() || !json.contains("toml") || !json["toml"].is_string())
    fail("'{}': the state '{}' is not a configuration", reader.path(), name);
  return json["toml"].get<std::string>();
}

ModelConfig stored_model_config(const CheckpointReader& reader) {
  return read_config<ModelConfig>(parse_toml(config_of_blob(reader, "model"), reader.path() + ": model"));
}

std::string stored_tokenizer_hash(const CheckpointReader& reader) {
  const auto json = nlohmann::json::parse(reader.blob("trainer"), nullptr, false);
  if (!json.is_object() || !json.contains("tokenizer") || !json["tokenizer"].is_string())
    fail("'{}': the state 'trainer' names no tokenizer", reader.path());
  return json["tokenizer"].get<std::string>();
}

namespace {

void load_weight(const CheckpointReader& reader, WeightSet& w, int i) {
  const Tensor local = w.master(i);
  read_part(reader, w.table()[i].name, {w.table()[i], w.placement(), local});
  if (const int64_t bad = first_not_finite(local.data, local.numel(), local.dtype()); bad >= 0)
    throw Error(fmt::format("'{}': weight '{}' holds a value that is not finite ({})", reader.path(),
                            w.table()[i].name, value_at(local.data, bad, local.dtype())),
                "this checkpoint cannot be used; go back to an older one");
}

/// Checks that the checkpoint's tensors are the model's. Returns whether adapters are among them.
bool require_model(const CheckpointReader& reader, const Model& model) {
  const WeightSet& w = model.weights();
  std::vector<ExpectedTensor> expected;
  const bool adapters = stored_model_config(reader).lora.rank > 0;
  for (int i = 0; i < w.size(); ++i)
    if (adapters || !is_adapter(w.table()[i].name))
      expected.push_back({w.table()[i].name, w.table()[i].shape});
  if (model.config().moe.balance != BalanceRule::none)
    for (const int64_t layer : model.decoder().moe_layers())
      expected.push_back({Model::router_bias_name(layer), model.router_bias(layer).shape()});
  require_tensors(reader, expected, {TensorKind::weight, TensorKind::buffer});
  return adapters;
}

void load_biases(const CheckpointReader& reader, Model& model) {
  if (model.config().moe.balance == BalanceRule::none) return;
  for (const int64_t layer : model.decoder().moe_layers())
    reader.read(Model::router_bias_name(layer), model.router_bias(layer));
  model.pin_skip_class();
}

}  // namespace

void load_model(const CheckpointReader& reader, Model& model) {
  WeightSet& w = model.weights();
  const bool adapters = require_model(reader, model);
  for (size_t u = 0; u < w.layout().buckets.size(); ++u) {
    for (const int i : w.layout().buckets[u].parameters)
      if (adapters || !is_adapter(w.table()[i].name)) load_weight(reader, w, i);
    w.masters_written(static_cast<int>(u));
  }
  load_biases(reader, model);
}

void load_model(const CheckpointReader& reader, Model& model, const std::function<void(int)>& loaded) {
  WeightSet& w = model.weights();
  const bool adapters = require_model(reader, model);
  for (int i = 0; i < w.size(); ++i) {
    if (adapters || !is_adapter(w.table()[i].name)) load_weight(reader, w, i);
    loaded(i);
  }
  load_biases(reader, model);
}

}  // namespace ingot
