// See huggingface_folder.h.
#include "exchange/huggingface_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/log.h"

namespace ingot {
namespace {

using Json = nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{64} << 20, kMaxSmallBytes = size_t{512} << 20;

/// Parses an index event by event, so that a hostile file costs no more than its size and duplicate names are
/// found.
class IndexReader final : public nlohmann::json_sax<Json> {
 public:
  IndexReader(std::map<std::string, std::string>& files, const std::string& path)
      : files_(files), path_(path) {}
  bool key(string_t& name) override {
    if (depth_ == 1) in_map_ = name == "weight_map", seen_ |= in_map_;
    name_ = name;
    return true;
  }
  bool start_object(size_t) override {
    if (++depth_ > kMaxDepth) fail("'{}' is nested deeper than {}", path_, kMaxDepth);
    if (depth_ > 2 && in_map_) wrong("an object");
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override {
    if (in_map_ || depth_ == 0) wrong("an array");
    if (++depth_ > kMaxDepth) fail("'{}' is nested deeper than {}", path_, kMaxDepth);
    return true;
  }
  bool end_array() override { return --depth_, true; }
  bool string(string_t& file) override {
    if (depth_ == 0) wrong("a string");
    if (!in_map_) return true;
    if (depth_ == 1) wrong("a string");
    if (!plain(file))
      throw Error(
          fmt::format("'{}': tensor '{}' is in '{}', which is not a plain file name", path_, name_, file),
          "an index may only name files beside it: take the folder from its source again");
    if (!files_.emplace(name_, file).second) fail("'{}': tensor '{}' appears twice", path_, name_);
    return true;
  }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool binary(binary_t&) override { return other("binary data"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail("'{}' is not valid JSON at byte {}", path_, position);
  }
  bool complete() const { return seen_; }

 private:
  static constexpr int kMaxDepth = 32;
  static bool plain(const std::string& file) {
    return !file.empty() && file[0] != '.' && file.size() < 256 && file.find("..") == file.npos &&
           std::all_of(file.begin(), file.end(),
                       [](unsigned char c) { return c > 32 && c != '/' && c != '\\' && c < 127; });
  }
  bool other(const char* what) const {
    if (in_map_ || depth_ == 0) wrong(what);
    return true;
  }
  [[noreturn]] void wrong(const char* what) const {
    if (depth_ == 0) fail("'{}' is {}, expected an object", path_, what);
    fail("'{}': weight_map has {} at '{}', expected the name of a file", path_, what, name_);
  }
  std::map<std::string, std::string>& files_;
  const std::string& path_;
  std::string name_;
  int depth_ = 0;
  bool in_map_ = false, seen_ = false;
};

/// The N of "model.layers.N.", or -1.
int64_t layer_of(const std::string& name) {
  constexpr std::string_view kPrefix = "model.layers.";
  if (name.compare(0, kPrefix.size(), kPrefix) != 0) return -1;
  int64_t n = -1;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, n);
  return error == std::errc() && rest < end && *rest == '.' ? n : -1;
}

/// A link in a folder from elsewhere may lead to any file of this machine, which a copy would give away. The
/// files of Hugging Face's cache are links to the folder "blobs" beside "snapshots".
void refuse_link_outside(const std::string& folder, const std::string& name) {
  namespace stdfs = std::filesystem;
  std::error_code code;
  const stdfs::path real = stdfs::canonical(stdfs::path(folder) / name, code);
  if (code) return;  // not of this machine's disk
  const stdfs::path inside = stdfs::canonical(folder, code);
  for (const stdfs::path& around : {inside, inside.parent_path().parent_path() / "blobs"})
    if (std::mismatch(around.begin(), around.end(), real.begin(), real.end()).first == around.end()) return;
  throw Error(fmt::format("'{}/{}' is a link out of its folder, to '{}'", folder, name, real.string()),
              "put the file itself there, if it belongs to the model");
}

}  // namespace

std::map<std::string, std::string> parse_weight_index(std::string_view text, const std::string& path) {
  if (text.size() > kMaxIndexBytes)
    fail("'{}' has {} bytes, at most {} are an index", path, text.size(), kMaxIndexBytes);
  if (text.find('\0') != text.npos) fail("'{}' has a zero byte at {}", path, text.find('\0'));
  std::map<std::string, std::string> files;
  IndexReader reader(files, path);
  nlohmann::json::sax_parse(text, &reader);
  if (!reader.complete() || files.empty()) fail("'{}' has no weight_map: it names no tensor", path);
  return files;
}

HuggingfaceFolder::HuggingfaceFolder(FileSystem& fs, std::string path) : path_(std::move(path)) {
  if (!fs.exists(config_path()))
    throw Error(fmt::format("'{}' holds no config.json", path_),
                "give the folder of a model in Hugging Face's layout: config.json and model.safetensors or "
                "its shards");
  config_ = fs.read(config_path());
  const bool single = fs.exists(path_ + "/" + kSingle), index = fs.exists(path_ + "/" + kIndex);
  if (single && index) log::warn("'{}' holds {} and {}: reading the first", path_, kSingle, kIndex);
  if (single)
    open_single(fs);
  else if (index)
    open_shards(fs);
  if (single || index) return;
  const bool pickled =
      fs.exists(path_ + "/pytorch_model.bin") || fs.exists(path_ + "/pytorch_model.bin.index.json");
  throw Error(
      fmt::format("'{}' holds neither {} nor {}", path_, kSingle, kIndex),
      pickled
          ? "its weights are pickled, which can run any code: convert them with transformers' save_pretrained"
          : "the weights are missing: download the whole folder");
}

void HuggingfaceFolder::open_single(FileSystem& fs) {
  files_.push_back(std::make_unique<SafetensorsFile>(fs, path_ + "/" + kSingle));
  for (const SafetensorsEntry& e : files_.back()->entries()) tensors_[e.name] = {files_.back().get(), &e};
}

void HuggingfaceFolder::open_shards(FileSystem& fs) {
  const std::string index = path_ + "/" + kIndex;
  std::map<std::string, const SafetensorsFile*> shards;
  for (const auto& [tensor, file] : parse_weight_index(fs.read(index), index)) {
    if (!shards.contains(file)) {
      if (!fs.exists(path_ + "/" + file))
        throw Error(fmt::format("'{}' names the file '{}', which is not there", index, file),
                    "download the whole folder");
      files_.push_back(std::make_unique<SafetensorsFile>(fs, path_ + "/" + file));
      shards[file] = files_.back().get();
    }
    const SafetensorsEntry* entry = shards[file]->find(tensor);
    if (entry == nullptr)
      fail("'{}' places tensor '{}' in '{}', which does not hold it", index, tensor, file);
    tensors_[tensor] = {shards[file], entry};
  }
  for (const auto& [file, shard] : shards)
    for (const SafetensorsEntry& e : shard->entries())
      if (const auto it = tensors_.find(e.name); it == tensors_.end() || it->second.file != shard)
        fail("'{}/{}' holds tensor '{}', which '{}' does not place there", path_, file, e.name, index);
}

int64_t HuggingfaceFolder::zaya_sublayers() const {
  int64_t count = 0;
  bool older = false;
  for (const auto& [name, found] : tensors_) {
    older |= name.find(".zaya_block.") != name.npos;
    count = std::max(count, layer_of(name) + 1);
  }
  return older ? count : 0;
}

ModelConfig HuggingfaceFolder::model() const {
  return model_from_huggingface(config_, config_path(), zaya_sublayers());
}

HuggingfaceLayout HuggingfaceFolder::layout() const {
  HuggingfaceLayout layout = huggingface_layout(model());
  layout.family = Json::parse(config_).at("model_type").get<std::string>();  // model() has read it
  layout.gpt2_prefix = !tensors_.contains("wte.weight");
  layout.zaya_sublayers = zaya_sublayers() > 0;
  return layout;
}

const std::vector<std::string>& huggingface_small_files() {
  static const std::vector<std::string> names = {"config.json",
                                                 "generation_config.json",
                                                 "tokenizer.json",
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "added_tokens.json",
                                                 "chat_template.jinja",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "tokenizer.model"};
  return names;
}

void copy_small_files(FileSystem& fs, const std::string& from, const std::string& to) {
  std::vector<std::pair<std::string, std::string>> files;  // all are read before the first is written
  for (const std::string& name : huggingface_small_files()) {
    if (!fs.exists(from + "/" + name)) continue;
    refuse_link_outside(from, name);
    files.emplace_back(name, read_at_most(fs, from + "/" + name, kMaxSmallBytes));
  }
  fs.create_folders(to);
  for (const auto& [name, content] : files) write_file_atomically(fs, to + "/" + name, content);
}

}  // namespace ingot
