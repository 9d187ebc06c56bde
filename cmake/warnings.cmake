# One interface target carries the house's warnings and sanitizers; every part links it.
add_library(lvn_flags INTERFACE)
target_compile_options(lvn_flags INTERFACE
    -Wall -Wextra -Wshadow -Wformat=2 -Wundef
    $<$<COMPILE_LANGUAGE:C>:-Wconversion>
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
    $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
    $<$<BOOL:${LVN_WERROR}>:-Werror>
    -fno-omit-frame-pointer)
target_compile_definitions(lvn_flags INTERFACE _GNU_SOURCE LVN_VERSION="${PROJECT_VERSION}")
if(LVN_SANITIZE)
    target_compile_options(lvn_flags INTERFACE -fsanitize=${LVN_SANITIZE} -fno-sanitize-recover=all)
    target_link_options(lvn_flags INTERFACE -fsanitize=${LVN_SANITIZE})
endif()
