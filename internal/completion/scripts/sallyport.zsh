#compdef sallyport
# Completion of sallyport for zsh.
#
# It asks the sallyport of the search path, and never a program that is named
# on the line: that may be a file of the folder you are in.

_sallyport() {
    local line more word=${(Q)PREFIX}
    local -a candidates before
    before=("${(@Q)words[2,CURRENT-1]}")
    for line in "${(@f)$(command sallyport __complete $((CURRENT - 1)) "${before[@]}" "$word" 2>/dev/null)}"; do
        case $line in
            :*) more=${line#:} ;;
            ?*)
                if [[ $line == *$'\t'* ]]; then
                    candidates+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
                else
                    candidates+=("${line//:/\\:}")
                fi
                ;;
        esac
    done
    if (( $#candidates )); then
        if [[ $more == nospace ]]; then
            _describe -V sallyport candidates -S ''
        else
            _describe -V sallyport candidates
        fi
    fi
    case $more in
        files|dirs)
            if [[ $PREFIX == --*=* ]]; then
                compset -P '--*='
            fi
            if [[ $more == dirs ]]; then
                _files -/
            else
                _files
            fi
            ;;
    esac
}

if [[ $funcstack[1] == _sallyport ]]; then
    _sallyport "$@"
else
    compdef _sallyport sallyport
fi
