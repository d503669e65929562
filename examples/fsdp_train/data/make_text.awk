# Writes the text that the example learns from: small stories about a harbour town, put together at
# random from the words below. mawk -f make_text.awk > harbour.txt
function random(n) { # 0 .. n-1; a generator of its own, so that every awk writes the same
    state = (state * 16807) % 2147483647
    return int(state / 2147483647 * n)
}
function one_of(list, words, n) {
    n = split(list, words, "|")
    return words[1 + random(n)]
}
function upper(s) { return toupper(substr(s, 1, 1)) substr(s, 2) }
function who() { return one_of("the pilot|the old miller|a sailor|the clockmaker|the girl from the lighthouse|the baker|a merchant|the ferryman|the teacher|the captain's son|a stranger in grey|the night watch") }
function thing() { return one_of("a brass lantern|the broken compass|a letter with a green seal|seven copper coins|a map of the northern isles|the key to the mill|a basket of warm bread|a silver whistle|the bell rope|a coil of tarred rope|an empty ink bottle|the ledger of last winter") }
function place() { return one_of("on the long pier|behind the mill|in the harbour office|under the stone bridge|at the market|by the lighthouse stairs|in the bakery|near the salt house|on the ferry|in the narrow street of the weavers") }
function when() { return one_of("in the morning|at noon|before the rain came|after the last ferry|when the tide was low|on the first day of spring|late in the evening|while the town was asleep") }
function did() { return one_of("found|lost|carried|sold|repaired|hid|borrowed|returned|painted|forgot|traded") }
function felt() { return one_of("was glad of it|said nothing|laughed for a long while|did not believe it|wrote it down at once|went home slowly|asked for the price|looked out to sea|counted it twice|shook the rain from the coat") }
function weather() { return one_of("The wind turned to the north.|Fog lay over the water.|The sun stood low behind the masts.|It rained without a pause.|The sea was as flat as a table.|Snow fell on the empty boats.|Gulls were crying over the roofs.") }
function said() { return one_of("\"The tide does not wait,\" said |\"Nobody asked me,\" said |\"There is always another boat,\" said |\"I have seen this before,\" said |\"Keep it dry and keep it quiet,\" said |\"It was here yesterday,\" said |\"Ask again tomorrow,\" said ") }
function sentence(k) {
    k = random(6)
    if (k == 0) return upper(when()) ", " who() " " did() " " thing() " " place() "."
    if (k == 1) return upper(who()) " " did() " " thing() " and " felt() "."
    if (k == 2) return said() who() "."
    if (k == 3) return weather()
    if (k == 4) return "Then " who() " came " place() " with " thing() "."
    return upper(place()) " " who() " and " who() " spoke about " thing() "; " who() " " felt() "."
}
BEGIN {
    state = 20011
    written = 0
    while (written < 40000) {
        paragraph = sentence()
        for (n = 2 + random(4); n > 0; n--)
            paragraph = paragraph " " sentence()
        print paragraph "\n"
        written += length(paragraph) + 2
    }
}
