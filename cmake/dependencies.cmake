# Every library comes from the system's packages (tools/deps installs them), llama.cpp from a
# virtual environment that the same script makes, or from an installed one.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(SIMDJSON REQUIRED IMPORTED_TARGET simdjson)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
if(LVN_TESTS)
    pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()

set(LVN_VENV ${CMAKE_SOURCE_DIR}/.venv CACHE PATH "virtual environment made by tools/deps")
file(GLOB LVN_LLAMA_ROOTS ${LVN_VENV}/lib/python3*/site-packages)
list(APPEND CMAKE_PREFIX_PATH ${LVN_LLAMA_ROOTS})
