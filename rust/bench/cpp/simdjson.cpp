// A processRecords line to columns by simdjson On-Demand and simdutf, as well as these two can do it: base64 from where it
// stands in the line straight to its column, strings unescaped straight to theirs, buffers reused. No data of null.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "simdjson.h"

// simdutf as its crate exports it.
struct simdutfrs_result_t {
    uint32_t error;
    size_t count;
};
extern "C" simdutfrs_result_t simdutf_base64_to_binary(const char *input, size_t length, char *output, uint64_t options,
                                                       uint64_t last_chunk_options);

using namespace simdjson;

// What Rust reads: a record's ends are at its row; `capacity` bounds the bytes of each column, and eight times the rows.
struct Columns {
    char *data;
    uint8_t *keys;
    uint8_t *sequences;
    int32_t *data_ends;
    int32_t *key_ends;
    int32_t *sequence_ends;
    int64_t *sub_sequence_numbers;
    int64_t *millis;
    size_t rows;
};

struct Scanner {
    ondemand::parser parser;
    Columns columns{};
    size_t capacity = 0;
    std::unique_ptr<uint64_t[]> memory;
};

namespace {

// A record takes far more than 32 characters, so that a line of `capacity` bytes has fewer rows than capacity / 32.
void make_room(Scanner &scanner, size_t length) {
    if (length <= scanner.capacity) return;
    const size_t words = length / 8 + 16, rows = length / 32 + 1;
    scanner.memory.reset(new uint64_t[3 * words + 4 * rows]);
    uint64_t *at = scanner.memory.get();
    const auto take = [&at](size_t count) { return std::exchange(at, at + count); };
    Columns &columns = scanner.columns;
    columns.data = reinterpret_cast<char *>(take(words));
    columns.keys = reinterpret_cast<uint8_t *>(take(words));
    columns.sequences = reinterpret_cast<uint8_t *>(take(words));
    columns.sub_sequence_numbers = reinterpret_cast<int64_t *>(take(rows));
    columns.millis = reinterpret_cast<int64_t *>(take(rows));
    columns.data_ends = reinterpret_cast<int32_t *>(take(rows));
    columns.key_ends = columns.data_ends + rows;
    columns.sequence_ends = reinterpret_cast<int32_t *>(take(rows));
    scanner.capacity = length;
}

template <bool any_order>
simdjson_inline simdjson_result<ondemand::value> member(ondemand::object &object, std::string_view name) {
    if constexpr (any_order) {
        return object.find_field_unordered(name);
    } else {
        return object.find_field(name);
    }
}

// The content of the string, as it stands in the line: base64 has no escapes, but for writers that nobody has seen.
simdjson_inline std::string_view raw_content(ondemand::value value) {
    std::string_view token = value.raw_json_token();
    while (!token.empty() && token.back() != '"') token.remove_suffix(1);
    return token.size() < 2 ? std::string_view() : token.substr(1, token.size() - 2);
}

template <bool any_order>
error_code scan(Scanner &scanner, const char *line, size_t length, size_t allocated) {
    make_room(scanner, length);
    Columns &columns = scanner.columns;
    char *data = columns.data;
    uint8_t *key = columns.keys, *sequence = columns.sequences;
    size_t row = 0;

    ondemand::document document;
    SIMDJSON_TRY(scanner.parser.iterate(line, length, allocated).get(document));
    ondemand::object root;
    SIMDJSON_TRY(document.get_object().get(root));
    std::string_view action;
    SIMDJSON_TRY(member<any_order>(root, "action").get_string().get(action));
    if (action != "processRecords") return INCORRECT_TYPE;
    ondemand::array records;
    SIMDJSON_TRY(member<any_order>(root, "records").get_array().get(records));
    for (simdjson_result<ondemand::value> element : records) {
        ondemand::object record;
        SIMDJSON_TRY(element.get_object().get(record));
        ondemand::value value;

        SIMDJSON_TRY(member<any_order>(record, "data").get(value));
        const std::string_view text = raw_content(value);
        const simdutfrs_result_t decoded = simdutf_base64_to_binary(text.data(), text.size(), data, 0, 0);
        if (decoded.error != 0) return STRING_ERROR;
        data += decoded.count;
        columns.data_ends[row] = static_cast<int32_t>(data - columns.data);

        ondemand::raw_json_string raw;
        std::string_view string;
        SIMDJSON_TRY(member<any_order>(record, "partitionKey").get_raw_json_string().get(raw));
        SIMDJSON_TRY(scanner.parser.unescape(raw, key).get(string));
        columns.key_ends[row] = static_cast<int32_t>(key - columns.keys);
        SIMDJSON_TRY(member<any_order>(record, "sequenceNumber").get_raw_json_string().get(raw));
        SIMDJSON_TRY(scanner.parser.unescape(raw, sequence).get(string));
        columns.sequence_ends[row] = static_cast<int32_t>(sequence - columns.sequences);

        SIMDJSON_TRY(member<any_order>(record, "approximateArrivalTimestamp").get_int64().get(columns.millis[row]));
        SIMDJSON_TRY(member<any_order>(record, "subSequenceNumber").get_int64().get(columns.sub_sequence_numbers[row]));
        row++;
    }
    int64_t millis_behind_latest;
    SIMDJSON_TRY(member<any_order>(root, "millisBehindLatest").get_int64().get(millis_behind_latest));
    columns.rows = row;
    return SUCCESS;
}

}  // namespace

extern "C" Scanner *fastkcl_simdjson_new() { return new Scanner; }

extern "C" void fastkcl_simdjson_free(Scanner *scanner) { delete scanner; }

// Scans a line in `allocated` readable bytes, at least 64 more than it has. Null if it cannot take the line.
extern "C" const Columns *fastkcl_simdjson_scan(Scanner *scanner, const char *line, size_t length, size_t allocated,
                                                bool any_order) {
    const error_code error = any_order ? scan<true>(*scanner, line, length, allocated)
                                       : scan<false>(*scanner, line, length, allocated);
    return error == SUCCESS ? &scanner->columns : nullptr;
}
