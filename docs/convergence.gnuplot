# Draws the table of examples/convergence.cpp, read from standard input, as SVG on standard output.
set terminal svg size 640,360 font "Helvetica,13" background rgb "white"
set logscale y
set format y "10^{%L}"
set xlabel "Newton iteration"
set ylabel "relative error"
set xrange [0.8:8.2]
set yrange [3e-17:3]
set xtics 1
set ytics 1e-16, 1e4
set grid ytics lc rgb "#dddddd"
set border 3
set tics nomirror
unset mytics
set key at graph 0.02, 0.45 left top Left reverse spacing 1.3 samplen 2
shown(e) = e < 1e-16 ? 1e-16 : e
set table $errors
plot "/dev/stdin" using 1:2:3:4:5 with table
unset table
plot $errors using 1:(shown($2)) title "x" with linespoints lw 2 pt 7 ps 0.6 lc rgb "#999999", \
     "" using 1:(shown($5)) title "gradient, unrolled" with linespoints lw 2 pt 5 ps 0.6 lc rgb "#e69f00", \
     "" using 1:(shown($4)) title "gradient, implicit" with linespoints lw 2 pt 9 ps 0.8 lc rgb "#009e73", \
     "" using 1:(shown($3)) title "gradient, one step" with linespoints lw 2 pt 13 ps 0.8 lc rgb "#0072b2"
