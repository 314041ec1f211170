// See dataset.h.
#include "data/dataset.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::data {
namespace {

/// The part of `bounds` (ascending, first 0) that holds `value`; empty parts are never chosen.
size_t part_of(const std::vector<int64_t>& bounds, int64_t value) {
  return static_cast<size_t>(std::upper_bound(bounds.begin(), bounds.end(), value) - bounds.begin()) - 1;
}

std::unique_ptr<Shard> open_shard(FileSystem& fs, const std::string& folder, const ShardInfo& info,
                                  const DatasetManifest& manifest, const OpenOptions& options) {
  const std::string path = folder + "/" + info.file;
  CheckedFiles* checked = options.checked;
  const bool known = checked != nullptr && checked->knows(path, info.hash);
  const bool verify = options.verify_hashes && !known;
  const auto before = checked != nullptr ? checked->stamp(path) : std::nullopt;
  auto shard = std::make_unique<Shard>(fs, folder, info, manifest, verify);
  if (verify && checked != nullptr) checked->remember(path, info.hash, before);
  return shard;
}

}  // namespace

TokenSplit::TokenSplit(std::string source, const SplitInfo& info, std::string content_hash, int64_t eos,
                       bool prompts, std::vector<std::unique_ptr<Shard>> shards)
    : source_(std::move(source)),
      name_(info.name),
      content_hash_(std::move(content_hash)),
      text_bytes_(info.text_bytes),
      eos_(eos),
      prompts_(prompts),
      shards_(std::move(shards)),
      token_bounds_{0},
      document_bounds_{0} {
  for (const auto& shard : shards_) {
    token_bounds_.push_back(token_bounds_.back() + shard->tokens());
    document_bounds_.push_back(document_bounds_.back() + shard->documents());
  }
}

void TokenSplit::read(int64_t begin, std::span<int32_t> out) const {
  INGOT_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= tokens(), "tokens {} + {} of {}",
              begin, out.size(), tokens());
  while (!out.empty()) {
    const size_t s = part_of(token_bounds_, begin);
    const auto here = std::min<int64_t>(static_cast<int64_t>(out.size()), token_bounds_[s + 1] - begin);
    shards_[s]->read(begin - token_bounds_[s], out.first(static_cast<size_t>(here)));
    out = out.subspan(static_cast<size_t>(here));
    begin += here;
  }
}

bool TokenSplit::in_loss(int64_t token) const {
  if (!prompts_) return true;
  INGOT_CHECK(token >= 0 && token < tokens(), "token {} of {}", token, tokens());
  const size_t s = part_of(token_bounds_, token);
  return shards_[s]->in_loss(token - token_bounds_[s]);
}

int64_t TokenSplit::document_begin(int64_t document) const {
  INGOT_CHECK(document >= 0 && document <= documents(), "document {} of {}", document, documents());
  if (document == documents()) return tokens();
  const size_t s = part_of(document_bounds_, document);
  return token_bounds_[s] + shards_[s]->document_begin(document - document_bounds_[s]);
}

int64_t TokenSplit::document_at(int64_t token) const {
  INGOT_CHECK(token >= 0 && token < tokens(), "token {} of {}", token, tokens());
  const size_t s = part_of(token_bounds_, token);
  return document_bounds_[s] + shards_[s]->document_at(token - token_bounds_[s]);
}

Dataset Dataset::open(FileSystem& fs, const std::string& folder, const OpenOptions& options) {
  const std::string path = folder + "/" + kManifestName;
  if (!fs.exists(path))
    throw Error(fmt::format("'{}' holds no tokenized dataset: there is no '{}'", folder, path),
                "tokenize the source into this folder, or let an interrupted tokenization finish");
  Dataset dataset;
  dataset.folder_ = folder;
  dataset.manifest_ = parse_manifest(fs.read(path), path);
  const DatasetManifest& m = dataset.manifest_;
  if (!options.tokenizer_hash.empty() && options.tokenizer_hash != m.tokenizer_hash)
    throw Error(fmt::format("the dataset '{}' was made with tokenizer {}, but the tokenizer in use is {}",
                            folder, m.tokenizer_hash, options.tokenizer_hash),
                "use the tokenizer that made the dataset, or tokenize the source again");
  for (const SplitInfo& split : m.splits) {
    std::vector<std::unique_ptr<Shard>> shards;
    for (const ShardInfo& info : split.shards) shards.push_back(open_shard(fs, folder, info, m, options));
    dataset.splits_.push_back(std::make_shared<TokenSplit>(m.name, split, m.content_hash(split), m.eos,
                                                           m.prompts, std::move(shards)));
  }
  return dataset;
}

bool Dataset::has_split(std::string_view name) const {
  return std::any_of(splits_.begin(), splits_.end(), [&](const auto& s) { return s->name() == name; });
}

std::shared_ptr<const TokenSplit> Dataset::split(std::string_view name) const {
  std::string names;
  for (const auto& s : splits_) {
    if (s->name() == name) return s;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", s->name());
  }
  throw Error(fmt::format("the dataset '{}' has no split '{}'; it has: {}", folder_, name,
                          names.empty() ? "none" : names),
              "tokenize the source with a validation fraction above 0");
}

}  // namespace ingot::data
