// An export that the family cannot express is refused before anything is written.
#include <gtest/gtest.h>

#include <filesystem>

#include "exchange/export.h"
#include "exchange/import.h"
#include "support/support.h"

namespace ingot::test::export_refusal_test {

TEST(ExportRefusal, LeavesNothingBehind) {
  const TempDir dir;
  FileSystem& fs = real_file_system();
  import_huggingface(fs, fixture("exchange/llama_text"), dir / "in");
  StoredModel m = open_stored_model(fs, dir / "in");
  m.config.logit_softcap = 5;
  try {
    export_huggingface(fs, m, dir / "out");
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("logit_softcap: 5"), std::string::npos) << e.what();
  }
  for (const char* path : {"out", "out.partial"}) EXPECT_FALSE(std::filesystem::exists(dir / path)) << path;
}

}  // namespace ingot::test::export_refusal_test
