# Completion of sallyport for bash 3.2 or newer.
#
# It asks the sallyport of the search path, and never a program that is named
# on the line: that may be a file of the folder you are in.

_sallyport() {
    local word line rest=${COMP_LINE:0:COMP_POINT} i words=() index=-1
    # Bash splits words at = and :. Where no space stands between two parts,
    # they are one word.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        line=${rest#"${rest%%[![:space:]]*}"}
        if [[ $i -eq $COMP_CWORD ]]; then
            word=$line
        fi
        if [[ $index -lt 0 || $line != "$rest" ]]; then
            index=$((index + 1))
            words[index]=
        fi
        words[index]+=$word
        rest=${line#"$word"}
    done
    word=${words[index]}

    # What stands before the last = or : stays where it is.
    local before= after=${word##*[=:]}
    if [[ $word != "$after" && $COMP_WORDBREAKS == *"${word:$((${#word} - ${#after} - 1)):1}"* ]]; then
        before=${word%"$after"}
    fi

    COMPREPLY=()
    local candidate more=
    while IFS= read -r line; do
        case $line in
        :*) more=${line#:} ;;
        *)
            candidate=${line%%$'\t'*}
            COMPREPLY+=("${candidate#"$before"}")
            ;;
        esac
    done < <(command sallyport __complete "$index" "${words[@]:1}" 2>/dev/null)

    case $more in
    nospace) compopt -o nospace 2>/dev/null ;;
    files) compopt -o default 2>/dev/null ;;
    dirs)
        compopt -o filenames 2>/dev/null
        while IFS= read -r line; do
            COMPREPLY+=("$line")
        done < <(compgen -d -- "$after")
        ;;
    esac
}

complete -F _sallyport sallyport
