// See peft.h.
#include "exchange/peft.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json_depth.h"
#include "checkpoint/model_state.h"
#include "exchange/derived_folder.h"
#include "tensor/convert.h"

namespace ingot {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kPrefix = "base_model.model.";
constexpr size_t kMaxConfigBytes = size_t{4} << 20;

/// A module of PEFT, which is the block of rows [row, row + rows) of a parameter of ours.
struct Module {
  std::string name;  ///< "model.layers.0.self_attn.q_proj"
  int parameter = -1;
  int64_t row = 0, rows = 0, block = 0;
};

/// The modules of all matrices with adapters.
std::vector<Module> modules_of(const Decoder& decoder, const HuggingfaceLayout& layout) {
  std::vector<Module> modules;
  for (const ExternalTensor& e : huggingface_tensors(decoder, layout)) {
    if (e.parameter < 0 || decoder.table()[e.parameter].adapter.a < 0) continue;
    const int64_t width = decoder.table()[e.parameter].shape[1];
    Module m{e.name.substr(0, e.name.rfind('.')), e.parameter, e.offset / width, e.shape[0], 0};
    const std::vector<int64_t>& blocks = decoder.table()[e.parameter].adapter.blocks;
    int64_t begin = 0;
    while (m.block < static_cast<int64_t>(blocks.size()) && begin < m.row)
      begin += blocks[static_cast<size_t>(m.block++)];
    const bool fits = e.stride == std::vector<int64_t>{width, 1} && begin == m.row &&
                      m.block < static_cast<int64_t>(blocks.size()) &&
                      blocks[static_cast<size_t>(m.block)] == m.rows;
    if (!fits)
      throw Error(fmt::format("PEFT has no module for the adapter of '{}': '{}' packs it otherwise",
                              decoder.table()[e.parameter].name, m.name),
                  "export the merged weights instead: --format=hf");
    modules.push_back(std::move(m));
  }
  return modules;
}

HuggingfaceLayout stored_layout(const StoredModel& m) {
  return m.layout.family.empty() ? huggingface_layout(m.config) : m.layout;
}

std::vector<float> read_rows(const CheckpointReader& reader, const ParameterSpec& spec, int64_t first,
                             int64_t rows) {
  std::vector<float> values(static_cast<size_t>(rows * spec.shape[1]));
  reader.read(spec.name, {{first, 0}, {rows, spec.shape[1]}}, DType::f32, values.data());
  return values;
}

std::string adapter_config(const LoraConfig& lora, const std::vector<Module>& modules,
                           const std::string& base) {
  OrderedJson targets = OrderedJson::array();
  for (const Module& m : modules) targets.push_back(m.name);
  const double alpha = lora.scale() * static_cast<double>(lora.rank);
  OrderedJson j{{"peft_type", "LORA"},
                {"task_type", "CAUSAL_LM"},
                {"base_model_name_or_path", base},
                {"r", lora.rank},
                {"lora_alpha", alpha},
                {"lora_dropout", 0.0},
                {"target_modules", targets},
                {"bias", "none"},
                {"fan_in_fan_out", false},
                {"use_rslora", false},
                {"use_dora", false},
                {"modules_to_save", nullptr},
                {"rank_pattern", OrderedJson::object()},
                {"alpha_pattern", OrderedJson::object()},
                {"inference_mode", true}};
  return j.dump(2) + "\n";
}

/// The JSON object of an adapter_config.json.
OrderedJson parse_config(const std::string& text, const std::string& path) {
  if (text.size() > kMaxConfigBytes)
    fail("'{}' has {} bytes, at most {} are an adapter_config.json", path, text.size(), kMaxConfigBytes);
  require_shallow_json(text, path);
  OrderedJson j = OrderedJson::parse(text, nullptr, false);
  if (!j.is_object()) fail("'{}' is not a JSON object", path);
  return j;
}

/// The parameters for whose modules the file has adapters. Throws an Error that names a tensor of no module.
std::vector<std::string> targets_of(const Decoder& base, const HuggingfaceLayout& layout,
                                    const SafetensorsFile& file) {
  std::map<std::string, int> parameters;
  for (const ExternalTensor& e : huggingface_tensors(base, layout))
    if (e.parameter >= 0) parameters[e.name.substr(0, e.name.rfind('.'))] = e.parameter;
  std::set<std::string> names;
  for (const SafetensorsEntry& t : file.entries()) {
    const size_t end = std::min(t.name.rfind(".lora_A.weight"), t.name.rfind(".lora_B.weight"));
    const bool ours = t.name.starts_with(kPrefix) && end != t.name.npos;
    const auto found =
        ours ? parameters.find(t.name.substr(std::string(kPrefix).size(), end - std::string(kPrefix).size()))
             : parameters.end();
    if (found == parameters.end())
      throw Error(
          fmt::format("'{}': the tensor '{}' belongs to no matrix of this model", file.path(), t.name),
          "was it trained on another base model?");
    names.insert(base.table()[found->second].name);
  }
  return {names.begin(), names.end()};
}

/// Reads a tensor of the file into `to`. Returns false if the file does not have it.
bool read_tensor(const SafetensorsFile& file, const std::string& name, const Tensor& to) {
  const SafetensorsEntry* entry = file.find(name);
  if (entry == nullptr) return false;
  const auto dtype = dtype_of_safetensors(entry->dtype);
  if (!dtype || !is_floating(*dtype) || entry->shape != std::vector<int64_t>{to.dim(0), to.dim(1)}) {
    std::string shape;
    for (const int64_t extent : entry->shape) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", extent);
    fail("'{}': '{}' is {} [{}], expected F32, BF16 or F64 {}", file.path(), name, entry->dtype, shape,
         to.shape().str());
  }
  std::vector<std::byte> copy(file.data(*entry).begin(), file.data(*entry).end());
  convert(Tensor(copy.data(), to.shape(), *dtype), to);
  return true;
}

}  // namespace

LoraConfig lora_from_peft(const std::string& adapter_config, const std::string& path) {
  const OrderedJson j = parse_config(adapter_config, path);
  const auto refuse = [&](const std::string& field, const std::string& expected) {
    const std::string found = j.contains(field) ? j[field].dump() : "missing";
    throw Error(fmt::format("'{}': '{}' is {}, expected {}", path, field, found.substr(0, 120), expected),
                "only plain LoRA adapters can be imported; merge others in PEFT (merge_and_unload) and "
                "import the model");
  };
  if (j.value("peft_type", OrderedJson()) != OrderedJson("LORA")) refuse("peft_type", "\"LORA\"");
  if (!j.contains("r") || !j["r"].is_number_integer() || j["r"] < 1 || j["r"] > 65536)
    refuse("r", "a rank from 1 to 65536");
  const double alpha =
      j.contains("lora_alpha") && j["lora_alpha"].is_number() ? j["lora_alpha"].get<double>() : 0;
  if (!(alpha >= 1e-6 && alpha <= 1e6)) refuse("lora_alpha", "a number from 1e-6 to 1e6");
  if (j.value("bias", OrderedJson("none")) != OrderedJson("none")) refuse("bias", "\"none\"");
  for (const char* flag : {"use_dora", "use_rslora", "fan_in_fan_out", "lora_bias"})
    if (j.contains(flag) && j[flag] != OrderedJson(false) && !j[flag].is_null()) refuse(flag, "false");
  for (const char* list : {"rank_pattern", "alpha_pattern", "modules_to_save", "layer_replication"})
    if (j.contains(list) && !j[list].empty()) refuse(list, "none");
  return {.rank = j["r"], .alpha = alpha, .targets = {}};
}

ExportReport export_peft(FileSystem& fs, const StoredModel& m, const std::string& out) {
  if (m.config.lora.rank == 0)
    throw Error(fmt::format("'{}' has no adapters", m.reader.path()), "export the whole model: --format=hf");
  if (fs.exists(out))
    throw Error(fmt::format("'{}' exists already", out), "choose another folder, or delete this one");
  const Decoder decoder(m.config);
  const ParameterTable& table = decoder.table();
  const std::vector<Module> modules = modules_of(decoder, stored_layout(m));
  const int64_t rank = m.config.lora.rank;
  std::vector<std::vector<float>> memory;
  std::vector<SafetensorsItem> items;
  ExportReport report{.family = "peft", .files = {"adapter_model.safetensors"}};
  const auto add = [&](const std::string& name, const ParameterSpec& spec, int64_t first, int64_t rows) {
    memory.push_back(read_rows(m.reader, spec, first, rows));
    items.push_back({name, DType::f32, {rows, spec.shape[1]}, memory.back().data()});
    report.bytes += rows * spec.shape[1] * 4;
  };
  for (const Module& module : modules) {
    const Adapter& adapter = table[module.parameter].adapter;
    add(kPrefix + module.name + ".lora_A.weight", table[adapter.a], module.block * rank, rank);
    add(kPrefix + module.name + ".lora_B.weight", table[adapter.b], module.row, module.rows);
  }
  const std::string partial = out + ".partial";
  fs.remove_all(partial);
  fs.create_folders(partial);
  Unfinished unfinished(fs, partial);
  write_safetensors(fs, partial + "/adapter_model.safetensors", items, {{"format", "pt"}});
  write_file_atomically(fs, partial + "/adapter_config.json",
                        adapter_config(m.config.lora, modules, m.small_files));
  fs.sync_folder(partial);
  fs.rename(partial, out);
  unfinished.keep();
  report.tensors = items.size();
  return report;
}

std::string import_peft(FileSystem& fs, const std::string& adapters, const std::string& base,
                        const std::string& out) {
  require_new_folder(fs, out);
  LoraConfig lora =
      lora_from_peft(fs.read(adapters + "/adapter_config.json"), adapters + "/adapter_config.json");
  const StoredModel m = open_stored_model(fs, base);
  if (m.config.lora.rank > 0)
    throw Error(fmt::format("'{}' has adapters already", m.reader.path()), "name the model without them");
  const SafetensorsFile file(fs, adapters + "/adapter_model.safetensors");
  ModelConfig config = m.config;
  lora.targets = targets_of(Decoder(m.config), stored_layout(m), file);
  config.lora = lora;
  Model model(config, Precision::f32());
  load_model(m.reader, model);
  const ParameterTable& table = model.decoder().table();
  size_t used = 0;
  for (const Module& module : modules_of(model.decoder(), stored_layout(m))) {
    const Adapter& adapter = table[module.parameter].adapter;
    const int64_t rank = lora.rank;
    const Tensor a = model.weights().master(adapter.a).slice(module.block * rank, (module.block + 1) * rank);
    const Tensor b = model.weights().master(adapter.b).slice(module.row, module.row + module.rows);
    const bool has_a = read_tensor(file, kPrefix + module.name + ".lora_A.weight", a),
               has_b = read_tensor(file, kPrefix + module.name + ".lora_B.weight", b);
    if (has_a != has_b) fail("'{}' has only one of the two matrices of '{}'", file.path(), module.name);
    used += has_a ? 2 : 0;
  }
  INGOT_CHECK(used == file.entries().size(), "{} of {} tensors used", used, file.entries().size());
  copy_small_files_of(fs, m, true, out);
  return write_derived_model(fs, m, config, m.layout, model_pieces(model),
                             {{"made_by", "adapters"}, {"from", m.reader.path()}, {"adapters", adapters}},
                             out);
}

}  // namespace ingot
