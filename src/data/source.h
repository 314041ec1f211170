// Raw text in: files, folders and patterns become a stream of documents, one at a time, in constant memory.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum.h"
#include "base/file_system.h"

namespace ingot::data {

/// How a plain text file divides into documents. Blank-line and marker documents lose the newlines around
/// them.
enum class DocumentSplit {
  whole_file,  ///< the file, byte for byte
  /// Paragraphs: runs of lines between empty lines (spaces, tabs and \r count as empty).
  blank_line,
  marker  ///< the text between occurrences of SourceOptions::marker
};
constexpr auto enum_names(DocumentSplit) {
  return names_in_order<DocumentSplit>("whole_file", "blank_line", "marker");
}

struct SourceOptions {
  DocumentSplit split = DocumentSplit::whole_file;
  std::string marker = "<|endoftext|>";
  std::string field = "text";  ///< of a JSONL row; must hold a string
  std::string prompt_field;    ///< of a JSONL row: text before it that is not in the loss; empty: none
  bool conversations = false;  ///< a document is a row of a JSONL file as it stands: messages, tools
  bool preferences = false;    ///< the same, of preferences: chosen, rejected
  bool whole_rows() const { return conversations || preferences; }
};

/// A file, its size in bytes and whether its rows are JSON (names ending in .jsonl or .ndjson) or plain text.
struct SourceFile {
  std::string path;
  uint64_t bytes = 0;
  bool json_lines = false;
  std::string format;  ///< ending of a registered format; empty: text or JSON
};

/// The documents of one file of a format that a program using the library brings (docs/extend-data.md).
class FileReader {
 public:
  virtual ~FileReader() = default;
  /// The next document, or false at the end. The text is valid until the next call. Throws Error for damage.
  virtual bool next(std::string_view& document) = 0;
};
/// `content` lives as long as the reader; `path` is for messages.
using FileReaderMaker =
    std::function<std::unique_ptr<FileReader>(std::string_view content, const std::string& path)>;
/// Files whose names end in `ending` (".csv") are read by what `make` returns. Before any source is read; not
/// thread-safe. Error for an ending that is taken.
void register_file_format(const std::string& ending, FileReaderMaker make);

/// What a file of this name would be, without looking for it.
SourceFile source_file(const std::string& path);
/// Files behind the given paths, in the given order: a file stands for itself; a folder for all files below
/// it in order of name (hidden ones are left out); a pattern (* ? [..], as in a shell) for its matches in
/// order of name. Error: nothing there, a folder or pattern without files, a file reached twice, an archive
/// or another binary file.
std::vector<SourceFile> find_source_files(FileSystem& fs, const std::vector<std::string>& paths);

/// Walks over the documents of the files. Empty documents are skipped. A UTF-8 byte order mark is dropped.
class DocumentReader {
 public:
  DocumentReader(FileSystem& fs, std::vector<SourceFile> files, SourceOptions options);
  ~DocumentReader();
  DocumentReader(const DocumentReader&) = delete;
  DocumentReader& operator=(const DocumentReader&) = delete;

  /// The next document, or false at the end. The text is valid until the next call. Errors carry file:line: a
  /// row that is no JSON object, a missing field, a field that is no string, a prompt with nothing after it.
  bool next(std::string_view& document);
  /// Bytes at the start of the document that next() gave which are its prompt.
  size_t prompt_bytes() const;
  /// File and line of the row that next() gave, "data.jsonl:12"; of a JSONL file.
  std::string where() const;
  /// Bytes of all files read so far: for progress.
  uint64_t bytes_done() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::data
