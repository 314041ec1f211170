// An error of the API: what a client gets as {"error": {...}} with an HTTP status, in OpenAI's form.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

#include "serve/http.h"

namespace ingot::serve {

struct ApiError : std::runtime_error {
  /// `param`: the field that is wrong; `code`: OpenAI's word for the case, e.g. "model_not_found".
  explicit ApiError(const std::string& message, int http_status = 400, std::string wrong_field = "",
                    std::string word = "")
      : std::runtime_error(message),
        status(http_status),
        param(std::move(wrong_field)),
        code(std::move(word)) {}
  int status;
  std::string param, code;
};

/// The error as the body of a reply, and as the whole reply (429 and 503 say when to try again).
std::string error_json(const ApiError& error);
HttpMessage error_message(const ApiError& error);

/// True for equal texts, in a time that depends on their lengths only.
bool equal_in_constant_time(const std::string& given, const std::string& expected);

}  // namespace ingot::serve
