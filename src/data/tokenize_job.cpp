// See tokenize_job.h.
#include "data/tokenize_job.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "data/dataset.h"
#include "data/prepared_text.h"
#include "data/token_shard.h"

namespace ingot::data {
namespace {

constexpr size_t kBatchBytes = size_t{4} << 20;  // text given to the tokenizer at once

void check_options(const TokenizeOptions& o, const TokenizerView& t) {
  const bool plain =
      !o.name.empty() && o.name[0] != '.' && std::all_of(o.name.begin(), o.name.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '-' || c == '_' || c == '.';
      });
  if (!plain) fail("'{}' cannot name a dataset: use letters, digits, '-', '_' and '.'", o.name);
  if (!(o.validation_fraction >= 0 && o.validation_fraction < 1))
    fail("validation_fraction is {}, expected at least 0 and below 1", o.validation_fraction);
  if (o.shard_tokens < 1) fail("shard_tokens is {}, expected at least 1", o.shard_tokens);
  if (!o.source.prompt_field.empty() && o.validation == ValidationSplit::tail && o.validation_fraction > 0)
    throw Error("a validation tail would cut a row between its prompt and its answer",
                "hold out whole rows: tail_validation = false");
  if (o.source.whole_rows() && o.validation == ValidationSplit::tail && o.validation_fraction > 0)
    throw Error("a validation tail would cut a conversation", "hold out whole rows: tail_validation = false");
  INGOT_CHECK(!o.source.whole_rows() || t.encode_row);
  INGOT_CHECK(t.encode && t.vocabulary >= 1 && t.vocabulary <= INT32_MAX && t.eos < t.vocabulary);
  INGOT_CHECK(t.bos < t.vocabulary && !(t.bos >= 0 && t.eos_first));
  INGOT_CHECK(t.hash.size() == 32, "tokenizer hash '{}'", t.hash);
}

std::string describe(const TokenizeOptions& o, const TokenizerView& t) {
  const char* splits[] = {"whole file", "blank line", "marker"};
  const char* sides[] = {"document hash", "tail"};
  const std::string prompt =
      o.source.prompt_field.empty() ? "" : fmt::format(" after the prompt '{}'", o.source.prompt_field);
  std::string text =
      fmt::format("documents: {}{}; field '{}'{}; validation {} by {}; shards of {} tokens",
                  splits[static_cast<int>(o.source.split)],
                  o.source.split == DocumentSplit::marker ? " '" + o.source.marker + "'" : "", o.source.field,
                  prompt, o.validation_fraction, sides[static_cast<int>(o.validation)], o.shard_tokens);
  if (o.source.conversations) return text + "; conversations by " + t.conversation_hash;
  if (o.source.preferences) return text + "; preferences by " + t.conversation_hash;
  if (t.bos >= 0) text += fmt::format("; token {} before each", t.bos);
  if (t.parses_special) text += "; special tokens parsed";
  return text;
}

/// Hash of all that determines the dataset. Paths are left out: moved files are the same text.
std::string job_hash(const TokenizeOptions& o, const TokenizerView& t, const std::vector<InputInfo>& inputs) {
  std::string text =
      fmt::format("tokenize 1\n{}\n{}\n{} {} {}\n", o.name, describe(o, t), t.hash, t.vocabulary, t.eos);
  if (t.eos_first) text += "eos first\n";
  for (const InputInfo& input : inputs) {
    const SourceFile file = source_file(input.path);
    text += fmt::format("{} {}{}\n", file.json_lines, input.hash, file.format);
  }
  return hash128_hex(text.data(), text.size());
}

/// The dataset says for every token whether it is in the loss.
bool has_mask(const SourceOptions& o) {
  return !o.prompt_field.empty() || o.whole_rows();
}

/// The shards of one split, written as documents arrive.
class SplitWriter {
 public:
  SplitWriter(FileSystem& fs, std::string folder, std::string split, const TokenizeOptions& options,
              const TokenizerView& tokenizer)
      : fs_(fs),
        folder_(std::move(folder)),
        dataset_(options.name),
        shard_tokens_(options.shard_tokens),
        shard_(tokenizer.vocabulary, tokenizer.hash, has_mask(options.source)) {
    info_.name = std::move(split);
  }
  void add(std::span<const int32_t> tokens, int64_t text_bytes, int64_t prompt) {
    shard_.add(tokens, text_bytes, prompt);
    if (shard_.tokens() >= shard_tokens_) flush();
  }
  void add(const ConversationTokens& row) {
    shard_.add(row.ids, row.loss_bytes, row.in_loss);
    if (shard_.tokens() >= shard_tokens_) flush();
  }
  SplitInfo finish() {
    if (shard_.documents() > 0) flush();
    return std::move(info_);
  }

 private:
  void flush() {
    const std::string file = fmt::format("{}-{}-{:05}.tokens", dataset_, info_.name, info_.shards.size());
    info_.shards.push_back(shard_.finish(fs_, folder_, file));
    info_.tokens += info_.shards.back().tokens;
    info_.documents += info_.shards.back().documents;
    info_.text_bytes += info_.shards.back().text_bytes;
  }
  FileSystem& fs_;
  std::string folder_;
  std::string dataset_;
  int64_t shard_tokens_;
  ShardWriter shard_;
  SplitInfo info_;
};

/// Collects documents until a batch is worth a call of the tokenizer. A prompt and what follows it are
/// encoded apart, as when the prompt is all there is yet; so the boundary between them is exact.
class Encoder {
 public:
  Encoder(const TokenizerView& tokenizer, SplitWriter& train, SplitWriter& validation)
      : tokenizer_(tokenizer), writers_{&train, &validation} {}
  void add(std::string_view text, size_t prompt, bool validation) {
    if (text.empty()) return;
    texts_.push_back({bytes_.size(), text.size(), prompt, validation});
    bytes_.append(text);
    if (bytes_.size() >= kBatchBytes) flush();
  }
  void add_row(std::string_view row, std::string where, bool validation) {
    rows_.push_back({std::string(row), std::move(where), validation});
    row_bytes_ += row.size();
    if (row_bytes_ >= kBatchBytes) flush_rows();
  }
  void flush_rows() {
    std::vector<std::vector<ConversationTokens>> tokens(rows_.size());
    parallel_for(static_cast<int64_t>(rows_.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        tokenizer_.encode_row(rows_[i].text, rows_[i].where, tokens[i]);
    });
    for (size_t i = 0; i < rows_.size(); ++i)
      for (const ConversationTokens& document : tokens[i]) {
        writers_[rows_[i].validation ? 1 : 0]->add(document);
        tokens_ += static_cast<int64_t>(document.ids.size());
      }
    documents_ += static_cast<int64_t>(rows_.size());
    rows_.clear();
    row_bytes_ = 0;
  }
  void flush() {
    flush_rows();
    std::vector<std::string_view> views;
    for (const Text& t : texts_) {
      if (t.prompt > 0) views.push_back(std::string_view(bytes_).substr(t.begin, t.prompt));
      views.push_back(std::string_view(bytes_).substr(t.begin + t.prompt, t.size - t.prompt));
    }
    std::vector<std::vector<int32_t>> tokens;
    if (!views.empty()) tokenizer_.encode(views, tokens);
    INGOT_CHECK(tokens.size() == views.size(), "{} texts, {} token lists", views.size(), tokens.size());
    auto next = tokens.begin();
    for (const Text& t : texts_) {
      std::vector<int32_t> document;
      const auto eos = static_cast<int32_t>(tokenizer_.eos);
      const auto first = static_cast<int32_t>(tokenizer_.eos_first ? tokenizer_.eos : tokenizer_.bos);
      if (t.prompt > 0) document = std::move(*next++);
      if (first >= 0) document.insert(document.begin(), first);
      const auto prompt = t.prompt > 0 ? static_cast<int64_t>(document.size()) : 0;
      document.insert(document.end(), next->begin(), next->end());
      ++next;
      if (eos >= 0 && !tokenizer_.eos_first) document.push_back(eos);
      writers_[t.validation ? 1 : 0]->add(document, static_cast<int64_t>(t.size - t.prompt), prompt);
      tokens_ += static_cast<int64_t>(document.size());
    }
    documents_ += static_cast<int64_t>(texts_.size());
    texts_.clear();
    bytes_.clear();
  }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }

 private:
  struct Text {
    size_t begin;
    size_t size;
    size_t prompt;  // its first bytes
    bool validation;
  };
  struct Row {
    std::string text, where;
    bool validation;
  };
  const TokenizerView& tokenizer_;
  SplitWriter* writers_[2];
  std::vector<Row> rows_;  // conversations
  size_t row_bytes_ = 0;
  std::vector<Text> texts_;
  std::string bytes_;
  int64_t documents_ = 0;
  int64_t tokens_ = 0;
};

/// Where the tail begins, in text bytes. Takes a separate pass over the documents.
uint64_t tail_begin(FileSystem& fs, const std::vector<SourceFile>& files, const TokenizeOptions& o) {
  DocumentReader reader(fs, files, o.source);
  std::string_view document;
  uint64_t total = 0;
  while (reader.next(document)) total += document.size();
  return static_cast<uint64_t>(static_cast<double>(total) * (1 - o.validation_fraction));
}

bool hashes_to_validation(std::string_view document, double fraction) {
  return static_cast<double>(hash64(document) >> 11) * 0x1p-53 < fraction;
}

/// The largest position <= at that does not cut a UTF-8 character.
size_t character_boundary(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

void encode_all(FileSystem& fs, const std::vector<SourceFile>& files, const TokenizeOptions& o,
                Encoder& encoder, const std::function<void(const TokenizeProgress&)>& progress) {
  const bool tail = o.validation == ValidationSplit::tail && o.validation_fraction > 0;
  const uint64_t cut = tail ? tail_begin(fs, files, o) : 0;
  uint64_t bytes_total = 0;
  for (const SourceFile& file : files) bytes_total += file.bytes;
  DocumentReader reader(fs, files, o.source);
  std::string_view document;
  uint64_t begin = 0;
  int64_t reported = -1;
  while (reader.next(document)) {
    if (o.source.whole_rows()) {
      encoder.add_row(document, reader.where(), hashes_to_validation(document, o.validation_fraction));
    } else if (!tail) {
      encoder.add(document, reader.prompt_bytes(), hashes_to_validation(document, o.validation_fraction));
    } else {
      const size_t here = cut <= begin ? 0 : std::min<uint64_t>(cut - begin, document.size());
      const size_t at = character_boundary(document, here);
      encoder.add(document.substr(0, at), 0, false);
      encoder.add(document.substr(at), 0, true);
    }
    begin += document.size();
    if (progress && encoder.documents() != reported) {
      reported = encoder.documents();
      progress({reader.bytes_done(), bytes_total, encoder.documents(), encoder.tokens()});
    }
  }
  encoder.flush();
  if (progress) progress({bytes_total, bytes_total, encoder.documents(), encoder.tokens()});
}

void refuse_empty(const DatasetManifest& m, const TokenizeOptions& o) {
  for (const SplitInfo& split : m.splits)
    if (split.tokens == 0)
      throw Error(
          fmt::format("the {} split of source '{}' is empty: {} documents in total, validation fraction {}",
                      split.name, o.name,
                      m.splits[0].documents + (m.splits.size() > 1 ? m.splits[1].documents : 0),
                      o.validation_fraction),
          "choose a larger validation fraction, split by 'tail', or give more text");
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// The parts of a description that differ: "validation 0.1 by tail, now 0.2 by tail".
void compare_options(std::string_view then, std::string_view now, std::vector<std::string>& lines) {
  const auto next = [](std::string_view& text) {
    const size_t end = text.find("; ");
    const std::string_view part = text.substr(0, end);
    text = end == text.npos ? "" : text.substr(end + 2);
    return part;
  };
  while (!then.empty() || !now.empty()) {
    const std::string_view a = next(then), b = next(now);
    if (a != b) lines.push_back(fmt::format("options: {}; the recipe says: {}", a, b));
  }
}

/// Throws Error, with each difference, where `folder` holds the result of another job than this one.
void require_same_job(FileSystem& fs, const std::string& folder, const DatasetManifest& m,
                      const TokenizeOptions& o, const TokenizerView& t) {
  std::vector<std::string> lines;
  if (m.tokenizer_hash != t.hash)
    lines.push_back(fmt::format("tokenizer: {} ({} tokens); the recipe's is {} ({} tokens)", m.tokenizer_hash,
                                m.vocabulary, t.hash, t.vocabulary));
  else if (m.eos != std::max<int64_t>(t.eos, -1))
    lines.push_back(fmt::format("end-of-text token: {}; the recipe says {}", m.eos, t.eos));
  compare_options(m.options, describe(o, t), lines);
  CheckedFiles checked(fs, folder, o.checked_since);
  for (const std::string& line : changed_text(fs, m.inputs, o.inputs, checked))
    lines.push_back("text: " + line);
  checked.save();
  if (lines.empty() && job_hash(o, t, m.inputs) != m.job)
    lines.push_back(fmt::format("the end-of-text token {} documents; the recipe says {}",
                                t.eos_first ? "ends" : "begins", t.eos_first ? "begins" : "ends"));
  if (lines.empty()) return;
  std::string message = fmt::format("'{}' holds a dataset made of other text, options or tokenizer:", folder);
  for (const std::string& line : lines) message += "\n  " + line;
  throw Error(
      message,
      fmt::format("undo the change; or prepare the text anew in another place, with --data.folder=NEW; or "
                  "delete '{}' if no run needs it any more",
                  folder));
}

}  // namespace

DatasetManifest tokenize(FileSystem& fs, const std::string& folder_name, const TokenizeOptions& options,
                         const TokenizerView& tokenizer,
                         const std::function<void(const TokenizeProgress&)>& progress) {
  check_options(options, tokenizer);
  std::string folder = folder_name;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  if (fs.exists(folder + "/" + kManifestName)) {
    const DatasetManifest m = Dataset::open(fs, folder).manifest();
    require_same_job(fs, folder, m, options, tokenizer);
    return m;
  }
  if (fs.exists(folder) && !fs.list(folder).empty())
    throw Error(fmt::format("'{}' exists and is no dataset", folder),
                "remove that folder or choose another one");
  const std::vector<SourceFile> files = find_source_files(fs, options.inputs);
  CheckedFiles checked(fs, folder, options.checked_since);
  DatasetManifest m;
  m.name = options.name;
  m.token_bytes = token_bytes_for(tokenizer.vocabulary);
  m.vocabulary = tokenizer.vocabulary;
  m.eos = std::max<int64_t>(tokenizer.eos, -1);
  m.prompts = has_mask(options.source);
  m.tokenizer_hash = tokenizer.hash;
  m.options = describe(options, tokenizer);
  m.inputs = describe_inputs(files, checked);
  m.job = job_hash(options, tokenizer, m.inputs);

  const std::string partial = folder + ".partial";
  fs.remove_all(partial);
  fs.create_folders(partial);
  SplitWriter train(fs, partial, "train", options, tokenizer);
  SplitWriter validation(fs, partial, "validation", options, tokenizer);
  Encoder encoder(tokenizer, train, validation);
  encode_all(fs, files, options, encoder, progress);
  if (encoder.documents() == 0)
    throw Error(
        fmt::format("source '{}' holds no text: no document in {} file{}, the first is '{}'", options.name,
                    files.size(), files.size() == 1 ? "" : "s", files.empty() ? "" : files.front().path),
        "check the files and the document separator");
  m.splits.push_back(train.finish());
  if (options.validation_fraction > 0) m.splits.push_back(validation.finish());
  refuse_empty(m, options);
  write_file_atomically(fs, partial + "/" + kManifestName, to_json(m));
  fs.remove_all(folder);  // absent, or an empty folder
  fs.rename(partial, folder);
  fs.sync_folder(parent_of(folder));
  checked.save();
  return m;
}

}  // namespace ingot::data
