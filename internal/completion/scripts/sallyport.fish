# Completion of sallyport for fish.
#
# It asks the sallyport of the search path, and never a program that is named
# on the line: that may be a file of the folder you are in.

function __sallyport_complete
    set -l before (commandline -opc)
    set -l word (commandline -ct)
    set -l index (count $before)
    for line in (command sallyport __complete $index $before[2..-1] "$word" 2>/dev/null)
        switch $line
            case ':files'
                __fish_complete_path (string replace -r -- '^--[^=]*=' '' "$word")
            case ':dirs'
                __fish_complete_directories (string replace -r -- '^--[^=]*=' '' "$word")
            case ':*'
            case '*'
                printf '%s\n' $line
        end
    end
end

complete -c sallyport -f -a '(__sallyport_complete)'
