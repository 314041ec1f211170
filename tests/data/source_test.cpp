// data/source: files into documents, and the errors that raw text can cause.
#include "data/source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "support/data_support.h"

namespace ingot::data::source_test {

using test::write_text;

std::vector<std::string> read_all(const std::vector<std::string>& paths, const SourceOptions& options = {}) {
  FileSystem& fs = real_file_system();
  DocumentReader reader(fs, find_source_files(fs, paths), options);
  std::vector<std::string> documents;
  std::string_view text;
  while (reader.next(text)) documents.emplace_back(text);
  EXPECT_FALSE(reader.next(text));
  return documents;
}

std::string error_of(const std::vector<std::string>& paths, const SourceOptions& options = {}) {
  try {
    read_all(paths, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

using Documents = std::vector<std::string>;

TEST(DataSource, WholeFileIsOneDocumentWithoutByteOrderMark) {
  const test::TempDir dir;
  write_text(dir / "a.txt", "\xEF\xBB\xBFone\n\ntwo\n");
  write_text(dir / "empty.txt", "");
  EXPECT_EQ(read_all({dir / "a.txt", dir / "empty.txt"}), (Documents{"one\n\ntwo\n"}));
}

TEST(DataSource, BlankLinesSeparate) {
  const test::TempDir dir;
  SourceOptions o;
  o.split = DocumentSplit::blank_line;
  write_text(dir / "a.txt", "\n\n one\ntwo\n \t\r\n\nthree\r\nfour\r\n\r\nfive");
  EXPECT_EQ(read_all({dir / "a.txt"}, o), (Documents{" one\ntwo", "three\r\nfour", "five"}));
  write_text(dir / "b.txt", "\n \n\t\n");
  EXPECT_TRUE(read_all({dir / "b.txt"}, o).empty());
}

TEST(DataSource, MarkerSeparates) {
  const test::TempDir dir;
  SourceOptions o;
  o.split = DocumentSplit::marker;
  write_text(dir / "a.txt", "<|endoftext|>one\n<|endoftext|>\n<|endoftext|>two<|endoftext|>three");
  EXPECT_EQ(read_all({dir / "a.txt"}, o), (Documents{"one", "two", "three"}));
  o.marker = "";
  EXPECT_NE(error_of({dir / "a.txt"}, o).find("marker is empty"), std::string::npos);
}

TEST(DataSource, JsonLines) {
  const test::TempDir dir;
  write_text(dir / "a.jsonl",
             "{\"text\":\"caf\\u00e9\\n\"}\n\n{\"id\":7,\"text\":\"\"}\n{\"text\":\"last\"}");
  EXPECT_EQ(read_all({dir / "a.jsonl"}), (Documents{"caf\xC3\xA9\n", "last"}));
  SourceOptions o;
  o.field = "body";
  const std::string missing = error_of({dir / "a.jsonl"}, o);
  EXPECT_NE(missing.find("a.jsonl:1: the row has no field 'body'; its fields: 'text'"), std::string::npos)
      << missing;
}

TEST(DataSource, BadRowsNameFileAndLine) {
  const test::TempDir dir;
  const auto error = [&](const std::string& row) {
    write_text(dir / "bad.jsonl", "{\"text\":\"fine\"}\n" + row + "\n");
    return error_of({dir / "bad.jsonl"});
  };
  EXPECT_NE(error("{\"text\":\"cut").find("bad.jsonl:2: not valid JSON"), std::string::npos);
  EXPECT_NE(error("{\"text\":\"\xFF\"}").find("bad.jsonl:2: not valid JSON"), std::string::npos);
  EXPECT_NE(error("[1]").find("bad.jsonl:2: expected a JSON object, found array"), std::string::npos);
  EXPECT_NE(error("{\"text\":5}").find("bad.jsonl:2: field 'text' is number, expected a string"),
            std::string::npos);
}

TEST(DataSource, FoldersAndPatterns) {
  const test::TempDir dir;
  std::filesystem::create_directories(dir / "f/sub");
  write_text(dir / "f/b.txt", "b");
  write_text(dir / "f/a.txt", "a");
  write_text(dir / "f/sub/c.txt", "c");
  write_text(dir / "f/.hidden", "h");
  EXPECT_EQ(read_all({dir / "f"}), (Documents{"a", "b", "c"}));
  EXPECT_EQ(read_all({dir / "f/[ab].txt"}), (Documents{"a", "b"}));
  EXPECT_EQ(read_all({dir / "f/sub/c.txt", dir / "f/a*"}), (Documents{"c", "a"}));
  EXPECT_NE(error_of({dir / "f/*.md"}).find("no file matches"), std::string::npos);
  EXPECT_NE(error_of({dir / "f", dir / "f/a.txt"}).find("named twice"), std::string::npos);
  EXPECT_NE(error_of({dir / "nothing"}).find("there is no file or folder"), std::string::npos);
  EXPECT_NE(error_of({}).find("names no files"), std::string::npos);
  std::filesystem::create_directories(dir / "g");
  EXPECT_NE(error_of({dir / "g"}).find("holds no files"), std::string::npos);
}

TEST(DataSource, RefusesArchivesAndBinaries) {
  const test::TempDir dir;
  write_text(dir / "a.txt", "\x1f\x8b\x08 packed");
  EXPECT_NE(error_of({dir / "a.txt"}).find("is a gzip file"), std::string::npos);
  write_text(dir / "b.txt", "\x28\xB5\x2F\xFD packed");
  EXPECT_NE(error_of({dir / "b.txt"}).find("is a zstd file"), std::string::npos);
  write_text(dir / "c.txt", std::string("h\0i\0", 4));
  EXPECT_NE(error_of({dir / "c.txt"}).find("zero byte"), std::string::npos);
}

}  // namespace ingot::data::source_test
