// data/tokenize_job, token_shard, manifest, dataset: what goes in comes out, and nothing half or altered is
// accepted.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "support/data_support.h"

namespace ingot::data::tokenize_job_test {

using test::byte_tokenizer;
using test::write_text;

TokenizeOptions options_for(const std::string& input) {
  TokenizeOptions o;
  o.name = "tiny";
  o.inputs = {input};
  o.source.split = DocumentSplit::blank_line;
  o.validation_fraction = 0.2;
  o.shard_tokens = 64;
  return o;
}

std::string many_paragraphs(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += "paragraph " + std::to_string(i) + std::string(static_cast<size_t>(i % 7), '.') + "\n\n";
  return text;
}

std::string text_of(const TokenSplit& split) {
  std::vector<int32_t> tokens(static_cast<size_t>(split.tokens()));
  split.read(0, tokens);
  std::string text;
  for (const int32_t t : tokens) text += t == 256 ? '|' : static_cast<char>(t);
  return text;
}

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Tokenize, RoundTripAcrossShards) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  write_text(dir / "in.txt", many_paragraphs(100));
  TokenizeProgress last;
  const DatasetManifest m = tokenize(fs, dir / "out", options_for(dir / "in.txt"), byte_tokenizer(),
                                     [&](const TokenizeProgress& p) { last = p; });
  EXPECT_EQ(last.documents, 100);
  EXPECT_EQ(last.bytes_done, last.bytes_total);
  EXPECT_FALSE(fs.exists(dir / "out.partial"));
  const Dataset dataset = Dataset::open(fs, dir / "out", {true, byte_tokenizer().hash});
  EXPECT_EQ(to_json(dataset.manifest()), to_json(m));
  const auto train = dataset.train();
  const auto validation = dataset.validation();
  EXPECT_EQ(train->documents() + validation->documents(), 100);
  EXPECT_GT(validation->documents(), 5);
  EXPECT_GT(m.splits[0].shards.size(), 5u);
  EXPECT_EQ(train->tokens(), train->text_bytes() + train->documents());
  const std::string text = text_of(*train);
  for (int64_t d = 0; d < train->documents(); ++d) {
    const int64_t begin = train->document_begin(d);
    const int64_t end = train->document_begin(d + 1);
    EXPECT_EQ(text.substr(static_cast<size_t>(begin), 10), "paragraph ");
    EXPECT_EQ(text[static_cast<size_t>(end) - 1], '|');
    for (int64_t t = begin; t < end; ++t) EXPECT_EQ(train->document_at(t), d);
  }
}

TEST(Tokenize, TheEndOfTextTokenMayComeFirst) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  write_text(dir / "in.txt", many_paragraphs(20));
  TokenizerView first = byte_tokenizer();
  first.eos_first = true;
  tokenize(fs, dir / "out", options_for(dir / "in.txt"), first);
  const auto train = Dataset::open(fs, dir / "out", {true, {}}).train();
  for (int64_t d = 0; d < train->documents(); ++d)
    EXPECT_EQ(text_of(*train).substr(static_cast<size_t>(train->document_begin(d)), 11), "|paragraph ");
  EXPECT_NE(error_of([&] {
              tokenize(fs, dir / "out", options_for(dir / "in.txt"), byte_tokenizer());
            }).find("made of other"),
            std::string::npos);
}

TEST(Tokenize, SecondCallKeepsTheResultAndOtherJobsAreRefused) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  write_text(dir / "in.txt", many_paragraphs(50));
  const TokenizeOptions o = options_for(dir / "in.txt");
  tokenize(fs, dir / "out", o, byte_tokenizer());
  int calls = 0;
  TokenizerView counting = byte_tokenizer();
  counting.encode = [&](auto, auto&) { ++calls; };
  tokenize(fs, dir / "out/", o, counting);
  EXPECT_EQ(calls, 0);
  TokenizeOptions other = o;
  other.validation_fraction = 0.3;
  EXPECT_NE(error_of([&] { tokenize(fs, dir / "out", other, byte_tokenizer()); }).find("made of other text"),
            std::string::npos);
  fs.create_folders(dir / "foreign");
  write_text(dir / "foreign/file", "x");
  EXPECT_NE(error_of([&] { tokenize(fs, dir / "foreign", o, byte_tokenizer()); }).find("is no dataset"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              Dataset::open(fs, dir / "out", {false, byte_tokenizer(false).hash});
            }).find("tokenizer"),
            std::string::npos);
}

TEST(Tokenize, TailSplitCutsLikeNanoGpt) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  TokenizeOptions o = options_for(dir / "in.txt");
  o.source.split = DocumentSplit::whole_file;
  o.validation = ValidationSplit::tail;
  o.validation_fraction = 0.1;
  std::string text(1005, 'a');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 26);
  write_text(dir / "in.txt", text);
  tokenize(fs, dir / "out", o, byte_tokenizer(false));
  const Dataset d = Dataset::open(fs, dir / "out");
  EXPECT_EQ(text_of(*d.train()), text.substr(0, 904));  // int(1005 * 0.9)
  EXPECT_EQ(text_of(*d.validation()), text.substr(904));
  EXPECT_EQ(d.validation()->text_bytes(), 101);
  // A character is never cut: the boundary would fall between the two bytes of an e with acute accent.
  write_text(dir / "in.txt", "aaaaaaaa\xC3\xA9");
  tokenize(fs, dir / "out2", o, byte_tokenizer(false));
  EXPECT_EQ(Dataset::open(fs, dir / "out2").validation()->text_bytes(), 2);
}

TEST(Tokenize, EmptyCorpusAndEmptySplitsAreErrors) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  write_text(dir / "in.txt", "\n\n");
  EXPECT_NE(error_of([&] {
              tokenize(fs, dir / "out", options_for(dir / "in.txt"), byte_tokenizer());
            }).find("source 'tiny' holds no text"),
            std::string::npos);
  write_text(dir / "in.txt", "one");
  EXPECT_NE(error_of([&] {
              tokenize(fs, dir / "out", options_for(dir / "in.txt"), byte_tokenizer());
            }).find("split of source 'tiny' is empty"),
            std::string::npos);
  EXPECT_FALSE(fs.exists(dir / "out"));
  TokenizerView wrong = byte_tokenizer();
  wrong.vocabulary = 100;
  wrong.eos = -1;
  EXPECT_NE(
      error_of([&] { tokenize(fs, dir / "out", options_for(dir / "in.txt"), wrong); }).find("gave token 111"),
      std::string::npos);
  EXPECT_NE(error_of([&] { Dataset::open(fs, dir / "out"); }).find("holds no tokenized dataset"),
            std::string::npos);
}

TEST(Tokenize, LargeVocabularyTakesFourBytes) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  write_text(dir / "in.txt", "xyz");
  TokenizerView wide = byte_tokenizer();
  wide.encode = [](std::span<const std::string_view>, auto& tokens) { tokens = {{70000, 5, 99999}}; };
  wide.vocabulary = 100000;
  TokenizeOptions o = options_for(dir / "in.txt");
  o.validation_fraction = 0;
  EXPECT_EQ(tokenize(fs, dir / "out", o, wide).token_bytes, 4);
  std::vector<int32_t> tokens(4);
  Dataset::open(fs, dir / "out", {true, {}}).train()->read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{70000, 5, 99999, 256}));
}

/// Passes everything on, and fails at the n-th call that changes the disk, and at all later ones (a killed
/// process).
class DyingFileSystem final : public FileSystem {
 public:
  explicit DyingFileSystem(int64_t calls) : calls_(calls) {}
  bool died() const { return calls_ < 0; }
  std::unique_ptr<WritableFile> create(const std::string& path) override {
    step();
    return std::make_unique<File>(*this, real().create(path));
  }
  std::unique_ptr<WritableFile> open_append(const std::string& path) override {
    step();
    return std::make_unique<File>(*this, real().open_append(path));
  }
  std::unique_ptr<MappedFile> map(const std::string& path) override { return real().map(path); }
  std::string read(const std::string& path) override { return real().read(path); }
  bool exists(const std::string& path) override { return real().exists(path); }
  uint64_t size(const std::string& path) override { return real().size(path); }
  std::vector<std::string> list(const std::string& folder) override { return real().list(folder); }
  void create_folders(const std::string& path) override { step(), real().create_folders(path); }
  void rename(const std::string& from, const std::string& to) override { step(), real().rename(from, to); }
  void remove_all(const std::string& path) override { step(), real().remove_all(path); }
  void sync_folder(const std::string& path) override { step(), real().sync_folder(path); }
  uint64_t free_bytes(const std::string& path) override { return real().free_bytes(path); }
  void step() {
    if (--calls_ < 0) fail("planted failure");
  }

 private:
  static FileSystem& real() { return real_file_system(); }
  class File final : public WritableFile {
   public:
    File(DyingFileSystem& fs, std::unique_ptr<WritableFile> file) : fs_(fs), file_(std::move(file)) {}
    void append(const void* data, size_t size) override {
      if (fs_.calls_ == 0) file_->append(data, size / 2);  // dies in the middle of a write
      fs_.step();
      file_->append(data, size);
    }
    void sync() override { fs_.step(), file_->sync(); }
    void close() override { fs_.step(), file_->close(); }

   private:
    DyingFileSystem& fs_;
    std::unique_ptr<WritableFile> file_;
  };
  int64_t calls_;
};

TEST(Tokenize, InterruptedAnywhereLeavesNothingOrAWholeDataset) {
  const test::TempDir dir;
  FileSystem& fs = real_file_system();
  write_text(dir / "in.txt", many_paragraphs(20));
  TokenizeOptions o = options_for(dir / "in.txt");
  o.shard_tokens = 200;
  const std::string expected = to_json(tokenize(fs, dir / "reference", o, byte_tokenizer()));
  int64_t calls = 0;
  for (bool died = true; died; ++calls) {
    DyingFileSystem dying(calls);
    error_of([&] { tokenize(dying, dir / "out", o, byte_tokenizer()); });
    died = dying.died();
    if (fs.exists(dir / "out")) {
      EXPECT_EQ(to_json(Dataset::open(fs, dir / "out", {true, {}}).manifest()), expected) << calls;
    }
    EXPECT_EQ(to_json(tokenize(fs, dir / "out", o, byte_tokenizer())), expected) << calls;
    fs.remove_all(dir / "out");
  }
  EXPECT_GT(calls, 20);
}

class Tampering : public testing::Test {
 protected:
  void SetUp() override {
    write_text(dir_ / "in.txt", many_paragraphs(30));
    manifest_ = tokenize(fs_, dir_ / "out", options_for(dir_ / "in.txt"), byte_tokenizer());
    shard_ = dir_ / ("out/" + manifest_.splits[0].shards[0].file);
    bytes_ = fs_.read(shard_);
  }
  std::string open_error(bool verify) {
    return error_of([&] { Dataset::open(fs_, dir_ / "out", {verify, {}}); });
  }
  test::TempDir dir_;
  FileSystem& fs_ = real_file_system();
  DatasetManifest manifest_;
  std::string shard_;
  std::string bytes_;
};

TEST_F(Tampering, TruncatedShardNamesBothSizes) {
  write_text(shard_, bytes_.substr(0, bytes_.size() - 1));
  const std::string error = open_error(false);
  EXPECT_NE(error.find(shard_), std::string::npos);
  EXPECT_NE(error.find(fmt::format("has {} bytes, expected {}", bytes_.size() - 1, bytes_.size())),
            std::string::npos);
}

TEST_F(Tampering, MissingShard) {
  fs_.remove_all(shard_);
  EXPECT_NE(open_error(false).find(shard_), std::string::npos);
}

TEST_F(Tampering, AnyChangedByteIsFoundByTheHash) {
  for (size_t at = 0; at < bytes_.size(); at += 37) {
    std::string changed = bytes_;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    write_text(shard_, changed);
    EXPECT_NE(open_error(true), "") << at;
  }
  write_text(shard_, bytes_);
  EXPECT_EQ(open_error(true), "");
}

TEST_F(Tampering, WithoutHashesReadingStaysInBounds) {
  for (size_t at = 0; at < bytes_.size(); ++at) {
    std::string changed = bytes_;
    changed[at] = static_cast<char>(0xFF);
    write_text(shard_, changed);
    error_of([&] {
      const Dataset d = Dataset::open(fs_, dir_ / "out");
      text_of(*d.train());
      for (int64_t t = 0; t < d.train()->tokens(); t += 5) d.train()->document_at(t);
    });
  }
}

TEST_F(Tampering, ShardOfAnotherDatasetIsRefused) {
  TokenizerView other = byte_tokenizer();
  other.hash = "ffffffffffffffffffffffffffffffff";
  const DatasetManifest m = tokenize(fs_, dir_ / "other", options_for(dir_ / "in.txt"), other);
  write_text(shard_, fs_.read(dir_ / ("other/" + m.splits[0].shards[0].file)));
  EXPECT_NE(open_error(false).find("was made with tokenizer ffff"), std::string::npos);
}

TEST_F(Tampering, ManifestErrors) {
  const std::string path = dir_ / "out/manifest.json";
  const std::string good = to_json(manifest_);
  const auto error_with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_text(path, text.replace(at, from.size(), to));
    return open_error(false);
  };
  EXPECT_NE(error_with("\"version\": 1", "\"version\": 2").find("newer"), std::string::npos);
  EXPECT_NE(error_with("\"vocabulary\"", "\"vocabluary\"").find("'vocabulary' is missing"),
            std::string::npos);
  EXPECT_NE(error_with("\"eos\": 256", "\"eos\": 256, \"extra\": 1").find("unknown key 'extra'"),
            std::string::npos);
  EXPECT_NE(error_with("\"eos\": 256", "\"eos\": 2.5").find("expected an integer"), std::string::npos);
  EXPECT_NE(error_with("\"file\": \"tiny", "\"file\": \"../tiny").find("not a plain file name"),
            std::string::npos);
  EXPECT_NE(error_with("\"name\": \"train\"", "\"name\": \"validation\"").find("is there twice"),
            std::string::npos);
  EXPECT_NE(error_with("\"documents\": ", "\"documents\": 1").find("the split claims"), std::string::npos);
  EXPECT_NE(error_with("{", "").find("is not valid JSON"), std::string::npos);
}

TEST_F(Tampering, ManifestSurvivesRandomMutation) {
  const std::string good = to_json(manifest_);
  const Random random(3, RandomPurpose::test);
  int accepted = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    std::string text = good;
    for (uint64_t k = 0; k <= random.below(round * 16, 4); ++k) {
      const uint64_t at = random.below(round * 16 + 3 * k + 1, text.size());
      const auto byte = static_cast<char>(random.below(round * 16 + 3 * k + 2, 256));
      switch (random.below(round * 16 + 3 * k + 3, 4)) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        case 2:
          text.erase(at, 1 + random.below(round, 20));
          break;
        default:
          text.resize(at);
          break;
      }
      if (text.empty()) break;
    }
    error_of(
        [&] { to_json(parse_manifest(text, "m")), ++accepted; });  // an Error or a manifest, nothing else
  }
  EXPECT_LT(accepted, 1500);
}

}  // namespace ingot::data::tokenize_job_test
