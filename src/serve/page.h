// The page that the server shows at "/": its document, style and script. It loads nothing else.
#pragma once

namespace ingot::serve {

extern const char* const kPageHtml;
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace ingot::serve
